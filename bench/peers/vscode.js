// vscode-jsonrpc, the library below the language servers of VS Code.
//
//     NODE_PATH=.../node_modules node vscode.js

const { StreamMessageReader, StreamMessageWriter, createMessageConnection } =
  require("vscode-jsonrpc/node");

const connection = createMessageConnection(
  new StreamMessageReader(process.stdin),
  new StreamMessageWriter(process.stdout),
);
connection.onRequest("version", () => ({ version: "0.1.0" }));
connection.onRequest("count", ({ text, word, limit }) =>
  Math.min(text.split(word).length - 1, limit));
connection.onRequest("tally", ({ records }) => records.length);
connection.onClose(() => process.exit(0));
connection.listen();
