"""What `@resource` and `@prompt` make of a method for an AI client; to others it is a method."""

from __future__ import annotations

from typing import TYPE_CHECKING

from duet_rpc.jsonrpc.values import Value, set_field

if TYPE_CHECKING:
    from duet_rpc.methods.uri_template import UriTemplate


class Resource(Value):
    """Something to be read, by its URI."""

    __slots__ = ("mime", "template")
    kind = "resource"

    def __init__(self, template: UriTemplate, mime: str | None) -> None:
        set_field(self, "template", template)
        set_field(self, "mime", mime)

    template: UriTemplate
    mime: str | None

    def as_json(self) -> dict[str, object]:
        """Return it as `x-resource` has it."""
        mime = {} if self.mime is None else {"mimeType": self.mime}
        return {"uri": self.template.text, **mime}


class Prompt(Value):
    """Messages for a model, which a person asks for by name."""

    __slots__ = ()
    kind = "prompt"

    def as_json(self) -> dict[str, object]:
        """Return it as `x-prompt` has it: there is nothing more to say."""
        return {}
