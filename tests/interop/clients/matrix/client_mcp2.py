"""The client of the Python SDK 2.x, of the stateless era, in the matrix (see drive.py)."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import mcp_types as types
from drive import COMMAND, ENVIRONMENT, Adapter, Replies, drive
from mcp import Client, StdioServerParameters


class Mcp2(Adapter):
    is_stateless = True
    client: Client

    def version(self) -> str:
        return self.client.protocol_version

    async def tools(self) -> list[str]:
        return [each.name for each in (await self.client.list_tools()).tools]

    async def describe(self, name: str) -> Any:
        tools = (await self.client.list_tools()).tools
        return next((each.description, each.input_schema) for each in tools if each.name == name)

    async def call(
        self, name: str, arguments: "dict[str, Any] | None" = None, progress: Any = None
    ) -> tuple[bool, str, Any]:
        said = await self.client.call_tool(name, arguments, progress_callback=progress)
        return said.is_error, said.content[0].text, said.structured_content

    async def resources(self) -> list[str]:
        return [str(each.uri) for each in (await self.client.list_resources()).resources]

    async def templates(self) -> list[str]:
        found = await self.client.list_resource_templates()
        return [each.uri_template for each in found.resource_templates]

    async def read(self, uri: str) -> str:
        return (await self.client.read_resource(uri)).contents[0].text

    async def prompts(self) -> list[str]:
        return [each.name for each in (await self.client.list_prompts()).prompts]

    async def prompt(self, name: str, arguments: dict[str, str]) -> str:
        return (await self.client.get_prompt(name, arguments)).messages[0].content.text

    async def complete(self, kind: str, target: str, argument: str, value: str) -> list[str]:
        ref = (
            types.PromptReference(type="ref/prompt", name=target)
            if kind == "prompt"
            else types.ResourceTemplateReference(type="ref/resource", uri=target)
        )
        found = await self.client.complete(ref, {"name": argument, "value": value})
        return found.completion.values

    async def set_level(self, level: str) -> None:
        """Do nothing: every request says which level it wants."""

    @asynccontextmanager
    async def subscribed(self, uri: str) -> AsyncIterator[None]:
        async with self.client.listen(resource_subscriptions=[uri]) as events:

            async def hear() -> None:
                async for event in events:
                    self.notes.append(f"notifications/resources/updated {event.uri}")

            heard = asyncio.ensure_future(hear())
            yield
            heard.cancel()

    async def hear_log(self, params: types.LoggingMessageNotificationParams) -> None:
        self.keep_log(params.data)


async def main() -> None:
    adapter = Mcp2()
    replies = Replies(types)
    server = StdioServerParameters(command=COMMAND[0], args=COMMAND[1:], env=ENVIRONMENT)
    async with Client(
        server,
        sampling_callback=replies.answer,
        elicitation_callback=replies.fill_in,
        list_roots_callback=replies.give_roots,
        logging_callback=adapter.hear_log,
        log_level="info",
    ) as adapter.client:
        await drive(adapter)


asyncio.run(main())
