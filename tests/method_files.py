"""Files of methods, and daemons whose user has no others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.support import SOURCE, run

WORDS = '''
from __future__ import annotations
from duet_rpc import method, Context, RpcError

@method
def word_count(text: str, top: int = 10) -> dict[str, int]:
    """Count the words of a text.

    The longer story.
    """
    counts: dict[str, int] = {}
    for word in text.split():
        counts[word] = counts.get(word, 0) + 1
    return dict(sorted(counts.items(), key=lambda item: -item[1])[:top])

@method("text.shout")
def shout(text: str, /, *, marks: int = 1, ctx: Context = None) -> str:
    return text.upper() + "!" * marks

assert word_count("a a") == {"a": 2}
'''

SIX = ["initialize", "listMethods", "describeMethods", "version", "setLogLevel", "shutdown"]


def write(folder: Path, text: str, name: str = "words.py") -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def env_for(folder: Path) -> dict[str, str]:
    return {
        "HOME": str(folder / "home"),
        "XDG_CONFIG_HOME": "",
        "XDG_STATE_HOME": "",
        "DUET_RPC_CONFIG": "",
    }


def ask(tmp_path: Path, data: bytes, *flags: str) -> tuple[list[Any], str]:
    """Return results or errors, and the log."""
    code, replies, log = run(data, [*SOURCE, "rpc", *flags], env_for(tmp_path))
    assert code == 0
    assert "Traceback" not in log
    return [reply.get("result", reply.get("error")) for reply in replies], log
