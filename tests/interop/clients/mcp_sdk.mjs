// The client of the TypeScript SDK of MCP, calling a user's methods as tools.
//
//     node mcp_sdk.mjs PYTHON DUET-RPC.PYZ TOOLS

import assert from "node:assert";
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StdioClientTransport } from "@modelcontextprotocol/sdk/client/stdio.js";

const [python, pyz, methods] = process.argv.slice(2);
const client = new Client({ name: "test", version: "1" });
const call = (name, args, options) =>
  client.callTool({ name, arguments: args }, undefined, { timeout: 20000, ...options });

await client.connect(
  new StdioClientTransport({
    command: python, args: [pyz, "mcp", "--methods", methods], stderr: "ignore",
  }),
);
assert.strictEqual(client.getServerVersion().name, "duet-rpc");
assert.deepStrictEqual(client.getServerCapabilities(), {
  completions: {},
  logging: {},
  prompts: { listChanged: true },
  resources: { listChanged: true },
  tools: { listChanged: true },
});
await client.ping();

const { tools } = await client.listTools();
const stats = tools.find((tool) => tool.name === "text.stats");
assert.strictEqual(stats.title, "Statistics of a text");
assert.strictEqual(stats.annotations.readOnlyHint, true);
assert.deepStrictEqual(stats.inputSchema.required, ["text"]);

// The SDK holds each result against the tool's schema.
for (const [name, args, result] of [
  ["add", { a: 2, b: 3 }, { result: 5 }],
  ["text.stats", { text: "to be" }, { words: 2, longest: "to" }],
  ["nothing", undefined, { result: null }],
  ["gr__e_of_it", { box: [1, 2.5] }, { result: [1, 2.5, null] }],
  ["greet", { name: "😀" }, { result: "Hello, 😀! \u2028 日本語\nsecond line" }],
  ["box", { crate: true }, { width: 1, area: 0, label: "x" }],
]) {
  const said = await call(name, args);
  assert.deepStrictEqual(said.structuredContent, result);
  assert.strictEqual(said.isError, false);
}

for (const [name, args, words] of [
  ["add", { a: "2" }, "Invalid params: a: expected integer, received string"],
  ["boom", { secret: "s" }, "boom failed; the log of duet-rpc says where"],
  ["forgets", {}, "forgets returned something else than its signature promises: result"],
]) {
  const said = await call(name, args);
  assert.strictEqual(said.isError, true);
  assert.strictEqual(said.content[0].text, words);
}
await assert.rejects(call("no_such_tool"), (error) => error.code === -32602);
assert.deepStrictEqual((await client.listResources()).resources, []);
await assert.rejects(client.subscribeResource({ uri: "a:b" }), (error) => error.code === -32601);

// A pause, because the SDK forgets what came together with the reply.
const heard = [];
await call("steps", { count: 3, pause: 0.1 }, { onprogress: (said) => heard.push(said) });
assert.deepStrictEqual(
  heard,
  [0, 1, 2].map((step) => ({ progress: step, total: 3, message: `step ${step}` })),
);

const abort = new AbortController();
setTimeout(() => abort.abort("no time"), 300);
await assert.rejects(call("forever", {}, { signal: abort.signal }), /no time/);
assert.deepStrictEqual((await call("add", { a: 1 })).structuredContent, { result: 2 });

const before = Date.now();
await client.close();
assert(Date.now() - before < 2000, "it did not leave by itself");
console.log("all calls answered");
