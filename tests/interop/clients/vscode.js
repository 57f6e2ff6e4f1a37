// vscode-jsonrpc, a client that others wrote, making the same calls.
//
//     node vscode.js PYTHON DUET-RPC.PYZ

const assert = require("assert");
const { spawn } = require("child_process");
const { StreamMessageReader, StreamMessageWriter, createMessageConnection } =
  require("vscode-jsonrpc/node");

const [python, pyz] = process.argv.slice(2);

async function main() {
  const daemon = spawn(python, [pyz, "rpc"], { stdio: ["pipe", "pipe", "ignore"] });
  const exited = new Promise((resolve) => daemon.on("exit", resolve));
  const connection = createMessageConnection(
    new StreamMessageReader(daemon.stdout),
    new StreamMessageWriter(daemon.stdin),
  );
  connection.listen();
  const call = (method, ...params) => connection.sendRequest(method, ...params);
  const fails = async (code, method, ...params) => {
    const error = await call(method, ...params).then(() => assert.fail("no error"), (e) => e);
    assert.strictEqual(error.code, code);
    return error;
  };

  assert.strictEqual((await call("initialize")).serverInfo.name, "duet-rpc");
  assert.strictEqual((await call("listMethods")).length, 6);
  assert.strictEqual((await call("describeMethods")).length, 6);
  assert.match((await call("version")).version, /^\d+\.\d+\.\d+$/);
  assert.deepStrictEqual(await call("setLogLevel", { level: "WARN" }),
    { level: "warn", success: true });
  const word = "日本語 é 😀 \u2028 \"\\ \t";
  assert.strictEqual((await fails(-32602, "setLogLevel", { level: word })).data.received, word);
  const long = await fails(-32602, "setLogLevel", { level: "é".repeat(2500000) });
  assert.strictEqual(long.data.received, "é".repeat(80));
  await fails(-32601, "nonsense");
  const many = await Promise.all(Array.from({ length: 1000 }, () => call("version")));
  assert.strictEqual(many.length, 1000);
  assert.deepStrictEqual(await call("shutdown"), { message: "Shutting down gracefully" });
  assert.strictEqual(await exited, 0);
  connection.dispose();
  console.log("all calls answered");
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
