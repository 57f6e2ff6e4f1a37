"""The versions of MCP that are spoken here, and what each of them has.

Two eras. The older versions shake hands once (`initialize`) and remember the answer. In
the newer one nothing is remembered: every request says in its `_meta` which version it is
of and what its client can do.
"""

from __future__ import annotations

HANDSHAKE = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
LATEST_HANDSHAKE = HANDSHAKE[-1]
STATELESS = ("2026-07-28",)
SUPPORTED = (*STATELESS, *reversed(HANDSHAKE))

VERSION_KEY = "io.modelcontextprotocol/protocolVersion"
CAPABILITIES_KEY = "io.modelcontextprotocol/clientCapabilities"
CLIENT_INFO_KEY = "io.modelcontextprotocol/clientInfo"
LOG_LEVEL_KEY = "io.modelcontextprotocol/logLevel"
SERVER_INFO_KEY = "io.modelcontextprotocol/serverInfo"

UNSUPPORTED_VERSION = -32022
RESOURCE_NOT_FOUND = -32002  # in the handshake era


class Version:
    """What one version of the protocol has; dates compare as they follow each other."""

    __slots__ = (
        "annotations", "arguments_are_shown", "batch", "completions", "elicitation",
        "multiple_choice", "name", "progress_message", "stateless", "structured",
        "title",
    )  # fmt: skip

    def __init__(self, name: str) -> None:
        self.name = name
        self.annotations = name >= "2025-03-26"
        self.progress_message = name >= "2025-03-26"
        self.batch = name == "2025-03-26"
        self.completions = name >= "2025-03-26"  # are announced; there were some before
        self.title = name >= "2025-06-18"
        self.structured = name >= "2025-06-18"
        self.elicitation = name >= "2025-06-18"
        self.multiple_choice = name >= "2025-11-25"  # in a form, whose mode has a name since
        # Wrong arguments are shown to the model, which can correct them.
        self.arguments_are_shown = name >= "2025-11-25"
        self.stateless = name in STATELESS


VERSIONS = {name: Version(name) for name in SUPPORTED}
