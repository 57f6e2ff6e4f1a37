// A server on the TypeScript SDK 2.x: `node server_ts2.mjs NAME ERA`.
//
// ERA is `both`, or `stateless` for one that refuses the handshake.

import {
  McpServer, ResourceTemplate, completable, inputRequired,
} from "@modelcontextprotocol/server";
import { serveStdio } from "@modelcontextprotocol/server/stdio";
import { setTimeout as sleep } from "node:timers/promises";
import { z } from "zod";

const [name, era] = process.argv.slice(2);
const text = (said) => ({ content: [{ type: "text", text: said }] });
const report = (ctx, progress, total, message) =>
  ctx.mcpReq.notify({
    method: "notifications/progress",
    params: { progressToken: ctx.mcpReq._meta.progressToken, progress, total, message },
  });
let cancelled = 0;

// Asks for one thing, and says what came back. The SDK does it in the way of either era.
const asking = (request, read) => (ctx) => {
  const answer = ctx.mcpReq.inputResponses?.answer;
  return answer ? text(read(answer)) : inputRequired({ inputRequests: { answer: request } });
};

function make() {
  const server = new McpServer(
    { name, version: "1" },
    { capabilities: { logging: {}, resources: { subscribe: true } } },
  );
  server.registerTool(
    "shout",
    {
      description: "Shout.",
      inputSchema: z.object({ text: z.string() }),
      outputSchema: z.object({ loud: z.string(), length: z.number() }),
    },
    ({ text: said }) => {
      const structuredContent = { loud: said.toUpperCase(), length: said.length };
      return { ...text(JSON.stringify(structuredContent)), structuredContent };
    },
  );
  server.registerTool("fail", { description: "Fail." }, () => {
    throw new Error("no luck");
  });
  server.registerTool("steps", { description: "Report progress." }, async (ctx) => {
    for (const step of [1, 2, 3]) await report(ctx, step, 3, `step ${step}`);
    await sleep(250); // the TypeScript SDK forgets what comes together with the result
    return text("done");
  });
  server.registerTool("wait", { description: "Wait to be cancelled." }, async (ctx) => {
    await report(ctx, 1, 2);
    try {
      await sleep(60000, undefined, { signal: ctx.mcpReq.signal });
    } catch {
      cancelled += 1;
    }
    return text("over");
  });
  server.registerTool("count_cancelled", { description: "Return how many calls were." }, () =>
    text(String(cancelled)),
  );
  server.registerTool("log", { description: "Send log messages." }, async (ctx) => {
    await ctx.mcpReq.log("debug", "hidden");
    await ctx.mcpReq.log("info", `from ${name}`);
    await sleep(20);
    return text("logged");
  });
  const requestedSchema = z.object({ name: z.string() });
  server.registerTool(
    "ask",
    { description: "Ask the person at the client." },
    asking(
      inputRequired.elicit({ message: "Who?", requestedSchema }),
      (answer) => `Hello ${answer.content.name}`,
    ),
  );
  const messages = [{ role: "user", content: { type: "text", text: "Well?" } }];
  server.registerTool(
    "sample",
    { description: "Ask the client's model." },
    asking(inputRequired.createMessage({ messages, maxTokens: 9 }), (answer) => answer.content.text),
  );
  server.registerTool(
    "roots",
    { description: "Ask where the client works." },
    asking(inputRequired.listRoots(), (answer) => answer.roots[0].uri),
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
    {
      description: "Review code.",
      argsSchema: z.object({ language: completable(z.string(), languages) }),
    },
    ({ language }) => ({
      messages: [
        { role: "user", content: { type: "text", text: `Review this ${language} for ${name}` } },
      ],
    }),
  );
  server.server.setRequestHandler("resources/subscribe", () => ({}));
  return server;
}

serveStdio(make, { legacy: era === "stateless" ? "reject" : "serve" });
