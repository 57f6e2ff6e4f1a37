"""The client of the Python SDK 1.x, of the handshake era, in the matrix (see drive.py)."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import mcp.types as types
from drive import COMMAND, ENVIRONMENT, Adapter, Replies, drive
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client
from pydantic import AnyUrl


class Mcp1(Adapter):
    session: ClientSession
    agreed: types.InitializeResult

    def version(self) -> str:
        return str(self.agreed.protocolVersion)

    async def tools(self) -> list[str]:
        return [each.name for each in (await self.session.list_tools()).tools]

    async def describe(self, name: str) -> Any:
        tools = (await self.session.list_tools()).tools
        return next((each.description, each.inputSchema) for each in tools if each.name == name)

    async def call(
        self, name: str, arguments: "dict[str, Any] | None" = None, progress: Any = None
    ) -> tuple[bool, str, Any]:
        said = await self.session.call_tool(name, arguments, progress_callback=progress)
        return said.isError, said.content[0].text, said.structuredContent

    async def cancel(self, call: "asyncio.Task[Any]") -> None:
        """Say so to the server, which this SDK leaves to its user."""
        params = types.CancelledNotificationParams(requestId=self.session._request_id - 1)
        cancelled = types.CancelledNotification(method="notifications/cancelled", params=params)
        await self.session.send_notification(types.ClientNotification(cancelled))
        call.cancel()

    async def resources(self) -> list[str]:
        return [str(each.uri) for each in (await self.session.list_resources()).resources]

    async def templates(self) -> list[str]:
        found = await self.session.list_resource_templates()
        return [each.uriTemplate for each in found.resourceTemplates]

    async def read(self, uri: str) -> str:
        return (await self.session.read_resource(AnyUrl(uri))).contents[0].text

    async def prompts(self) -> list[str]:
        return [each.name for each in (await self.session.list_prompts()).prompts]

    async def prompt(self, name: str, arguments: dict[str, str]) -> str:
        return (await self.session.get_prompt(name, arguments)).messages[0].content.text

    async def complete(self, kind: str, target: str, argument: str, value: str) -> list[str]:
        ref = (
            types.PromptReference(type="ref/prompt", name=target)
            if kind == "prompt"
            else types.ResourceTemplateReference(type="ref/resource", uri=target)
        )
        found = await self.session.complete(ref, {"name": argument, "value": value})
        return found.completion.values

    async def set_level(self, level: Any) -> None:
        await self.session.set_logging_level(level)

    @asynccontextmanager
    async def subscribed(self, uri: str) -> AsyncIterator[None]:
        await self.session.subscribe_resource(AnyUrl(uri))
        yield

    async def hear(self, message: Any) -> None:
        if isinstance(message, types.ServerNotification):
            uri = getattr(message.root.params, "uri", None)
            self.notes.append(f"{message.root.method} {uri}" if uri else message.root.method)

    async def hear_log(self, params: types.LoggingMessageNotificationParams) -> None:
        self.keep_log(params.data)


async def main() -> None:
    client = Mcp1()
    replies = Replies(types)
    server = StdioServerParameters(command=COMMAND[0], args=COMMAND[1:], env=ENVIRONMENT)
    async with (
        stdio_client(server) as streams,
        ClientSession(
            *streams,
            sampling_callback=replies.answer,
            elicitation_callback=replies.fill_in,
            list_roots_callback=replies.give_roots,
            logging_callback=client.hear_log,
            message_handler=client.hear,
        ) as client.session,
    ):
        client.agreed = await client.session.initialize()
        await drive(client)


asyncio.run(main())
