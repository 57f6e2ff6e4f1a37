// A server on the TypeScript SDK 1.x, of the handshake era: `node server_ts1.mjs NAME`.

import { completable } from "@modelcontextprotocol/sdk/server/completable.js";
import { McpServer, ResourceTemplate } from "@modelcontextprotocol/sdk/server/mcp.js";
import { StdioServerTransport } from "@modelcontextprotocol/sdk/server/stdio.js";
import { SubscribeRequestSchema } from "@modelcontextprotocol/sdk/types.js";
import { setTimeout as sleep } from "node:timers/promises";
import { z } from "zod";

const [name] = process.argv.slice(2);
const server = new McpServer(
  { name, version: "1" },
  { capabilities: { logging: {}, resources: { subscribe: true } } },
);
const text = (said) => ({ content: [{ type: "text", text: said }] });
const report = (extra, progress, total, message) =>
  extra.sendNotification({
    method: "notifications/progress",
    params: { progressToken: extra._meta.progressToken, progress, total, message },
  });
let cancelled = 0;

server.registerTool(
  "shout",
  {
    description: "Shout.",
    inputSchema: { text: z.string() },
    outputSchema: { loud: z.string(), length: z.number() },
  },
  ({ text: said }) => {
    const structuredContent = { loud: said.toUpperCase(), length: said.length };
    return { ...text(JSON.stringify(structuredContent)), structuredContent };
  },
);
server.registerTool("fail", { description: "Fail." }, () => {
  throw new Error("no luck");
});
server.registerTool("steps", { description: "Report progress." }, async (extra) => {
  for (const step of [1, 2, 3]) await report(extra, step, 3, `step ${step}`);
  await sleep(250); // the TypeScript SDK forgets what comes together with the result
  return text("done");
});
server.registerTool("wait", { description: "Wait to be cancelled." }, async (extra) => {
  await report(extra, 1, 2);
  try {
    await sleep(60000, undefined, { signal: extra.signal });
  } catch {
    cancelled += 1;
  }
  return text("over");
});
server.registerTool("count_cancelled", { description: "Return how many calls were." }, () =>
  text(String(cancelled)),
);
server.registerTool("log", { description: "Send log messages." }, async (extra) => {
  await server.server.sendLoggingMessage({ level: "debug", data: "hidden" }, extra.sessionId);
  await server.server.sendLoggingMessage({ level: "info", data: `from ${name}` }, extra.sessionId);
  await sleep(20);
  return text("logged");
});
server.registerTool("ask", { description: "Ask the person at the client." }, async () => {
  const properties = { name: { type: "string" } };
  const requestedSchema = { type: "object", properties, required: ["name"] };
  const { content } = await server.server.elicitInput({ message: "Who?", requestedSchema });
  return text(`Hello ${content.name}`);
});
server.registerTool("sample", { description: "Ask the client's model." }, async () => {
  const messages = [{ role: "user", content: { type: "text", text: "Well?" } }];
  const { content } = await server.server.createMessage({ messages, maxTokens: 9 });
  return text(content.text);
});
server.registerTool("roots", { description: "Ask where the client works." }, async () =>
  text((await server.server.listRoots()).roots[0].uri),
);
server.registerTool("touch", { description: "Say that a resource changed." }, async () => {
  await server.server.sendResourceUpdated({ uri: `notes://${name}/today` });
  return text("touched");
});
server.registerTool("grow", { description: "Add a tool." }, () => {
  server.registerTool("grown", { description: "Is new." }, () => text("new"));
  return text("grown");
});

const read = (uri, said) => ({ contents: [{ uri: uri.href, text: `${said} at ${name}` }] });
server.registerResource("today", `notes://${name}/today`, {}, (uri) => read(uri, "today"));
const complete = { day: (value) => ["monday"].filter((each) => each.startsWith(value)) };
server.registerResource(
  "note",
  new ResourceTemplate(`notes://${name}/days/{day}`, { list: undefined, complete }),
  {},
  (uri, { day }) => read(uri, day),
);
const languages = (value) => ["python", "ruby"].filter((each) => each.startsWith(value));
server.registerPrompt(
  "review",
  { description: "Review code.", argsSchema: { language: completable(z.string(), languages) } },
  ({ language }) => ({
    messages: [
      { role: "user", content: { type: "text", text: `Review this ${language} for ${name}` } },
    ],
  }),
);
server.server.setRequestHandler(SubscribeRequestSchema, () => ({}));

await server.connect(new StdioServerTransport());
