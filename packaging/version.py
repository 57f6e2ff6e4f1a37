"""Set the version wherever it has to be written: `make version NEW=1.2.3`.

The version is defined in duet_rpc/__init__.py; the build, the program and the daemon read it
there. Emacs and its package managers read the header of duet-rpc.el, so it stands there, too, and
a release has its section in CHANGELOG.md. A test holds the three together.
"""

from __future__ import annotations

import re
import sys
import time
from pathlib import Path

TOP = Path(__file__).resolve().parent.parent

NUMBER = r"(?:0|[1-9]\d*)\.(?:0|[1-9]\d*)\.(?:0|[1-9]\d*)"
PLACES = {
    "duet_rpc/__init__.py": (rf'^__version__ = "{NUMBER}"$', '__version__ = "{}"'),
    "elisp/duet-rpc.el": (rf"^;; Version: {NUMBER}$", ";; Version: {}"),
    "CHANGELOG.md": (r"^## \[Unreleased\]$", "## [Unreleased]\n\n## {} - {}"),
}


def main(version: str, top: Path = TOP) -> None:
    """Change each of the places, or none of them."""
    if not re.fullmatch(NUMBER, version):
        sys.exit(
            f"duet-rpc: {version!r} is not a version such as 1.2.3; usage: make version NEW=1.2.3"
        )
    changed = {}
    for name, (pattern, line) in PLACES.items():
        line = line.format(version, time.strftime("%Y-%m-%d"))
        text, count = re.subn(pattern, line, (top / name).read_text(), flags=re.M)
        if count != 1:
            sys.exit(f"duet-rpc: {name} has {count} lines that match {pattern}, not one")
        changed[name] = text
    for name, text in changed.items():
        (top / name).write_text(text)
    print(f"{version} is in {', '.join(changed)}")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "")
