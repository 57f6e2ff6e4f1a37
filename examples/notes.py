"""Notes that you share with an AI client: you keep the region, a model reads it."""

from pathlib import Path
from typing import Literal

from duet_rpc import Message, Region, RpcError, command, prompt, resource

FOLDER = Path("~/.local/share/notes").expanduser()


@command(key="C-c k", result="message", destructive=False)
def keep_note(text: Region, name: str) -> str:
    """Keep the region as a note, at the end of what the note has."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    with (FOLDER / f"{Path(name).name}.md").open("a", encoding="utf-8") as file:
        file.write(text.rstrip() + "\n")
    return f"Kept in {file.name}"


@resource("notes://all")
def list_notes() -> list[str]:
    """List the names of all notes."""
    return sorted(path.stem for path in FOLDER.glob("*.md"))


@resource("notes://note/{name}", mime_type="text/markdown")
def read_note(name: str) -> str:
    """Read one note."""
    if name not in list_notes():
        raise RpcError(-32002, f"there is no note {name!r}")
    return (FOLDER / f"{name}.md").read_text(encoding="utf-8")


@prompt
def summarize_note(name: str, length: Literal["short", "long"] = "short") -> list[Message]:
    """Summarize a note."""
    return [Message("user", f"Write a {length} summary:\n\n{read_note(name)}")]
