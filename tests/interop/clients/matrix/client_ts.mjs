// The clients of the TypeScript SDK in the matrix: 1.x of the handshake era, 2.x of the stateless.
//
//     node client_ts.mjs 1|2 SERVERS COMMAND…
//
// They do what drive.py does, and print what they have seen.

import { setTimeout as sleep } from "node:timers/promises";

const [sdk, list, command, ...args] = process.argv.slice(2);
const servers = list.split(",");
const old = sdk === "1";
const PATIENCE = 15000;

const { Client } = await import(
  old ? "@modelcontextprotocol/sdk/client/index.js" : "@modelcontextprotocol/client"
);
const { StdioClientTransport } = await import(
  old ? "@modelcontextprotocol/sdk/client/stdio.js" : "@modelcontextprotocol/client/stdio"
);
const types = old ? await import("@modelcontextprotocol/sdk/types.js") : {};

const logs = [];
const notes = [];
const client = new Client(
  { name: "matrix", version: "1" },
  {
    capabilities: { elicitation: {}, sampling: {}, roots: {} },
    ...(old ? {} : { versionNegotiation: { mode: "auto" } }),
  },
);

// 1.x is told of a method by its schema, 2.x by its name.
const on = (kind, method, schema, handler) =>
  client[`set${kind}Handler`](old ? types[schema] : method, handler);
on("Request", "elicitation/create", "ElicitRequestSchema", () => ({
  action: "accept",
  content: { name: "Ada" },
}));
on("Request", "sampling/createMessage", "CreateMessageRequestSchema", () => ({
  model: "none",
  role: "assistant",
  content: { type: "text", text: "Well enough" },
}));
on("Request", "roots/list", "ListRootsRequestSchema", () => ({
  roots: [{ uri: "file:///project" }],
}));
on("Notification", "notifications/message", "LoggingMessageNotificationSchema", ({ params }) => {
  logs.push(params.data.msg ?? params.data); // FastMCP's servers have it inside an object
});
on(
  "Notification",
  "notifications/tools/list_changed",
  "ToolListChangedNotificationSchema",
  ({ method }) => {
    notes.push(method);
  },
);
on(
  "Notification",
  "notifications/resources/updated",
  "ResourceUpdatedNotificationSchema",
  ({ method, params }) => {
    notes.push(`${method} ${params.uri}`);
  },
);

const call = async (name, given, options = {}) => {
  const params = { name, arguments: given };
  if (!old) params._meta = { "io.modelcontextprotocol/logLevel": "info" };
  const said = await (old
    ? client.callTool(params, undefined, options)
    : client.callTool(params, options));
  return { ...said, text: said.content[0].text };
};
const toolNames = async () => (await client.listTools()).tools.map((tool) => tool.name);

// The user's own tools and prompts have no server in their names.
const named = (server, what) => (server === "own" ? what : `${server}__${what}`);
const belongsTo = (server, name) =>
  server === "own" ? !name.includes("__") : name.startsWith(`${server}__`);

async function waitUntil(isDone, patience = PATIENCE) {
  const deadline = Date.now() + patience;
  for (;;) {
    const found = await isDone();
    if (found || Date.now() > deadline) return found;
    await sleep(50);
  }
}

const looks = {
  tools: async (name) =>
    (await toolNames()).filter((each) => belongsTo(name, each)).sort(),
  structured: async (name) => (await call(named(name, "shout"), { text: "hi" })).structuredContent,
  plain: async (name) =>
    (await call(named(name, "whisper"), { text: "HI", tail: "!" })).structuredContent.result,
  described: async (name) => {
    const { tools } = await client.listTools();
    const whisper = tools.find((tool) => tool.name === named(name, "whisper"));
    const { required, properties } = whisper.inputSchema;
    return [whisper.description, required, Object.keys(properties)];
  },
  failing: async (name) => {
    const said = await call(named(name, "fail"));
    return [said.isError, said.text.includes("no luck")];
  },
  progress: async (name) => {
    const heard = [];
    const onprogress = (said) => heard.push([said.progress, said.total, said.message]);
    const said = await call(named(name, "steps"), {}, { onprogress });
    return [...heard, said.text];
  },
  cancel: async (name) => {
    const abort = new AbortController();
    const onprogress = () => abort.abort("no time");
    await call(named(name, "wait"), {}, { onprogress, signal: abort.signal }).catch(() => {});
    const count = async () => (await call(named(name, "count_cancelled"))).text;
    await waitUntil(async () => (await count()) !== "0", 3000);
    return count();
  },
  resources: async (name) =>
    (await client.listResources()).resources
      .map((each) => each.uri)
      .filter((uri) => uri.startsWith(`notes://${name}/`)),
  read: async (name) =>
    (await client.readResource({ uri: `notes://${name}/today` })).contents[0].text,
  templates: async (name) =>
    (await client.listResourceTemplates()).resourceTemplates
      .map((each) => each.uriTemplate)
      .filter((uri) => uri.startsWith(`notes://${name}/`)),
  "read template": async (name) =>
    (await client.readResource({ uri: `notes://${name}/days/monday` })).contents[0].text,
  prompts: async (name) =>
    (await client.listPrompts()).prompts
      .map((each) => each.name)
      .filter((each) => belongsTo(name, each)),
  prompt: async (name) => {
    const given = { name: named(name, "review"), arguments: { language: "python" } };
    return (await client.getPrompt(given)).messages[0].content.text;
  },
  "complete prompt": async (name) => {
    const ref = { type: "ref/prompt", name: named(name, "review") };
    const argument = { name: "language", value: "py" };
    return (await client.complete({ ref, argument })).completion.values;
  },
  "complete template": async (name) => {
    const ref = { type: "ref/resource", uri: `notes://${name}/days/{day}` };
    const argument = { name: "day", value: "mo" };
    return (await client.complete({ ref, argument })).completion.values;
  },
  log: async (name) => {
    if (old) await client.setLoggingLevel("info");
    logs.length = 0;
    await call(named(name, "log"));
    return [...logs];
  },
  ask: async (name) => (await call(named(name, "ask"))).text,
  sample: async (name) => (await call(named(name, "sample"))).text,
  roots: async (name) => (await call(named(name, "roots"))).text,
  subscription: async (name) => {
    const uri = `notes://${name}/today`;
    if (old) await client.subscribeResource({ uri });
    const subscription = old || (await client.listen({ resourceSubscriptions: [uri] }));
    await call(named(name, "touch"));
    const told = await waitUntil(() => notes.includes(`notifications/resources/updated ${uri}`), 3000);
    if (!old) await subscription.close();
    return told;
  },
  "list changed": async (name) => {
    notes.length = 0;
    await call(named(name, "grow"));
    // Nobody tells a stateless client that has not subscribed: it asks again.
    const told =
      !old || (await waitUntil(() => notes.includes("notifications/tools/list_changed"), 3000));
    return [told, await waitUntil(async () => (await toolNames()).includes(named(name, "grown")), 3000)];
  },
};

async function lookAt(name) {
  const seen = {};
  for (const [title, look] of Object.entries(looks)) {
    const late = new AbortController();
    const timeout = sleep(PATIENCE, "timeout", { signal: late.signal }).catch(() => {});
    try {
      seen[title] = await Promise.race([look(name), timeout]);
    } catch (error) {
      seen[title] = String(error);
    }
    late.abort();
  }
  return seen;
}

await client.connect(new StdioClientTransport({ command, args, env: process.env, stderr: "ignore" }));
const start = Date.now();
const first = await toolNames();
const seconds = (Date.now() - start) / 1000;
await waitUntil(async () => {
  const tools = await toolNames();
  return servers.every((name) => tools.includes(named(name, "shout")));
});
const wasTold = notes.includes("notifications/tools/list_changed");
const seen = { "first list": [first, seconds, wasTold] };
seen.version = old
  ? client.transport._protocolVersion ?? types.LATEST_PROTOCOL_VERSION
  : client.getNegotiatedProtocolVersion();
for (const name of servers) seen[name] = await lookAt(name);
console.log(JSON.stringify(seen));
await client.close();
