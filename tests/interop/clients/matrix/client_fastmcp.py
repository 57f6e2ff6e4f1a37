"""The client of FastMCP, of the stateless era, in the matrix (see drive.py)."""

import asyncio
from typing import Any

import mcp_types as types
from drive import COMMAND, ENVIRONMENT, Adapter, drive
from fastmcp import Client
from fastmcp.client.transports import StdioTransport


class Fastmcp(Adapter):
    is_stateless = True
    client: Client

    def version(self) -> str:
        return str(self.client.protocol_version)

    async def tools(self) -> list[str]:
        return [each.name for each in await self.client.list_tools()]

    async def describe(self, name: str) -> Any:
        tools = await self.client.list_tools()
        return next((each.description, each.input_schema) for each in tools if each.name == name)

    async def plain(self, name: str, arguments: dict[str, Any]) -> Any:
        return (await self.client.call_tool(name, arguments)).data

    async def call(
        self, name: str, arguments: "dict[str, Any] | None" = None, progress: Any = None
    ) -> tuple[bool, str, Any]:
        said = await self.client.call_tool(
            name, arguments, progress_handler=progress, raise_on_error=False
        )
        return said.is_error, said.content[0].text, said.structured_content

    async def resources(self) -> list[str]:
        return [str(each.uri) for each in await self.client.list_resources()]

    async def templates(self) -> list[str]:
        return [each.uri_template for each in await self.client.list_resource_templates()]

    async def read(self, uri: str) -> str:
        return (await self.client.read_resource(uri))[0].text

    async def prompts(self) -> list[str]:
        return [each.name for each in await self.client.list_prompts()]

    async def prompt(self, name: str, arguments: dict[str, str]) -> str:
        return (await self.client.get_prompt(name, arguments)).messages[0].content.text

    async def complete(self, kind: str, target: str, argument: str, value: str) -> list[str]:
        ref = (
            types.PromptReference(type="ref/prompt", name=target)
            if kind == "prompt"
            else types.ResourceTemplateReference(type="ref/resource", uri=target)
        )
        return (await self.client.complete(ref, {"name": argument, "value": value})).values

    async def set_level(self, level: str) -> None:
        """Do nothing: this client asks for all messages, and leaves the choice to its user."""

    async def hear_log(self, params: types.LoggingMessageNotificationParams) -> None:
        if params.level != "debug":
            self.keep_log(params.data)


async def fill_in(message: str, response_type: Any, params: Any, context: Any) -> Any:
    return {"name": "Ada"}


async def answer(messages: Any, params: Any, context: Any) -> str:
    return "Well enough"


async def main() -> None:
    adapter = Fastmcp()
    async with Client(
        StdioTransport(COMMAND[0], COMMAND[1:], env=ENVIRONMENT),
        sampling_handler=answer,
        elicitation_handler=fill_in,
        roots=["file:///project"],
        log_handler=adapter.hear_log,
    ) as adapter.client:
        await drive(adapter)


asyncio.run(main())
