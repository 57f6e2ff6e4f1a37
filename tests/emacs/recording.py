"""Record a real Emacs in a terminal as an animated SVG: `make screenshot`.

tmux runs Emacs and is asked for what is on its screen, with colours, again and again while keys
are typed. Each distinct line is drawn once; a frame is a list of lines, and the frames are shown
one after the other. The result is text, so it stays sharp and small and can be selected.

    python -m tests.emacs.recording FILE.svg
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from html import escape
from pathlib import Path
from typing import NamedTuple

from tests.support import TOP

COLUMNS, LINES = 76, 12
CELL, LINE = 8.4, 19.0  # pixels
MARGIN = 12.0
LAST = 3.0
"""Seconds that the last frame stays."""

BACKGROUND, FOREGROUND = "#1d2433", "#dfe4ee"
COLORS = [
    "#1d2433", "#e2777a", "#8ec07c", "#e6c07b", "#7aa6da", "#c397d8", "#70c0b1", "#dfe4ee",
    "#5c6680", "#ff8f8f", "#b0e099", "#ffd98f", "#9cc4ff", "#e0b8f0", "#93e0d3", "#ffffff",
]  # fmt: skip

PYTHON = '''\
from duet_rpc import Region, command

@command(key="C-c w", result="replace")
def sort_words(text: Region) -> str:
    """Sort the words of the region."""
    return " ".join(sorted(text.split()))
'''

INIT = """\
(setq inhibit-startup-screen t initial-scratch-message nil make-backup-files nil)
(menu-bar-mode -1) (electric-indent-mode -1) (global-eldoc-mode -1) (blink-cursor-mode -1)
(setq-default mode-line-format " %b   %m ")
(setq save-silently t suggest-key-bindings nil python-indent-guess-indent-offset nil)
(add-to-list 'load-path "{elisp}")
(require 'duet-rpc)
(duet-rpc-mode 1)
"""


class Frame(NamedTuple):
    """What the screen showed from a moment on."""

    at: float
    lines: tuple[str, ...]
    cursor: tuple[int, int]


class Terminal:
    """Emacs in a tmux of its own, and what was on its screen."""

    def __init__(self, home: Path, command: str) -> None:
        self._socket = str(home / "tmux")
        self.frames: list[Frame] = []
        self._now = 0.0
        environ = {**os.environ, "HOME": str(home), "TERM": "xterm-256color", "LC_ALL": "C.UTF-8"}
        environ.pop("XDG_CONFIG_HOME", None)
        size = ["-x", str(COLUMNS), "-y", str(LINES)]
        start = ["-f", "/dev/null", "new-session", "-d", *size, command]
        subprocess.run(["tmux", "-S", self._socket, *start], env=environ, check=True)
        self._tmux("set", "-g", "status", "off")
        self._tmux("set", "-g", "default-terminal", "tmux-256color")

    def _tmux(self, *words: str) -> str:
        command = ["tmux", "-S", self._socket, *words]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    def type(self, *keys: str, pause: float = 0.4) -> None:
        """Press keys one after the other, then let whoever watches read."""
        for key in keys:
            self._tmux("send-keys", key)
            time.sleep(0.15)
            self._show(0.12)
        self.look(pause)

    def write(self, text: str, pause: float = 0.4) -> None:
        """Type a text, some letters at a time."""
        for piece in re.findall(r".{1,4}|\n", text):
            self._tmux("send-keys", *(["Enter"] if piece == "\n" else ["-l", "--", piece]))
            time.sleep(0.06)
            self._show(0.07)
        self.look(pause)

    def look(self, pause: float, settle: float = 0.6) -> None:
        """Wait for Emacs, then show what it shows for a while."""
        time.sleep(settle)
        self._show(pause)

    def _show(self, pause: float) -> None:
        lines = tuple(self._tmux("capture-pane", "-e", "-N", "-p").split("\n")[:LINES])
        x, y = self._tmux("display-message", "-p", "#{cursor_x} #{cursor_y}").split()
        self.frames.append(Frame(self._now, lines, (int(x), int(y))))
        self._now += pause

    def screen(self) -> str:
        """Return what is on the screen, without colours."""
        return self._tmux("capture-pane", "-p")

    def close(self) -> None:
        """End it all."""
        self._tmux("kill-server")


# Drawing.


def draw(frames: list[Frame], path: Path) -> None:
    """Write the frames as one animated picture."""
    width, height = COLUMNS * CELL + 2 * MARGIN, LINES * LINE + 2 * MARGIN
    total = frames[-1].at + LAST
    drawn: dict[str, str] = {}
    body = []
    shown = [frame for at, frame in enumerate(frames) if at == 0 or frame[1:] != frames[at - 1][1:]]
    # Where nothing moves, on paper for example, the fullest screen is shown.
    still = max(shown, key=lambda frame: sum(map(len, map(str.strip, frame.lines))))
    for number, frame in enumerate(shown):
        end = shown[number + 1].at if number + 1 < len(shown) else total
        parts = [
            f'<use href="#{drawn.setdefault(line, f"l{len(drawn)}")}" y="{at * LINE:g}"/>'
            for at, line in enumerate(frame.lines)
            if line.strip()
        ]
        x, y = frame.cursor
        parts.append(f'<rect class="c" x="{x * CELL:.1f}" y="{y * LINE:g}"/>')
        times = f"0;{frame.at / total:.4f};{min(end / total, 1):.4f}"
        first = "inline" if number == 0 else "none"
        body.append(
            f'<g display="{"inline" if frame is still else "none"}">{"".join(parts)}'
            f'<animate attributeName="display" '
            f'values="{first};inline;none" keyTimes="{times}" dur="{total:g}s" '
            'calcMode="discrete" repeatCount="indefinite"/></g>'
        )
    symbols = "".join(f'<g id="{name}">{draw_line(line)}</g>' for line, name in drawn.items())
    path.write_text(
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" '
        f'width="{width:g}" height="{height:g}">'
        f"<style>text{{font:14px ui-monospace,Menlo,Consolas,monospace;white-space:pre;"
        f"fill:{FOREGROUND}}}.c{{width:{CELL}px;height:{LINE}px;fill:#fff;opacity:.55}}</style>"
        f'<rect width="100%" height="100%" rx="8" fill="{BACKGROUND}"/><defs>{symbols}</defs>'
        f'<g transform="translate({MARGIN:g} {MARGIN:g})">{"".join(body)}</g></svg>\n'
    )


def draw_line(line: str) -> str:
    """Draw one line of the screen: backgrounds first, then the text."""
    boxes, texts, column = [], [], 0
    for text, front, back, bold in pieces(line):
        x, size = column * CELL, len(text) * CELL
        if back is not None:
            boxes.append(f'<rect x="{x:.1f}" width="{size:.1f}" height="{LINE:g}" fill="{back}"/>')
        word = text.strip()
        if word:  # not every viewer keeps the spaces around it
            x, size = x + (len(text) - len(text.lstrip())) * CELL, len(word) * CELL
            weight = ' font-weight="bold"' if bold else ""
            color = "" if front is None else f' style="fill:{front}"'
            texts.append(
                f'<text x="{x:.1f}" y="14" textLength="{size:.1f}"{weight}{color}>'
                f"{escape(word)}</text>"
            )
        column += len(text)
    return "".join(boxes + texts)


def pieces(line: str) -> Iterator[tuple[str, str | None, str | None, bool]]:
    """Split a line at its escape sequences: text, colour, background, bold."""
    style = Style()
    for codes, text in re.findall(r"\x1b\[([\d;]*)m|([^\x1b]+)", line):
        if not text:
            style.change([int(code or 0) for code in codes.split(";")])
        elif style.reverse:
            yield text, style.back or BACKGROUND, style.front or FOREGROUND, style.bold
        else:
            yield text, style.front, style.back, style.bold


class Style:
    """How a terminal writes from here on."""

    def __init__(self) -> None:
        self.front: str | None = None
        self.back: str | None = None
        self.bold = self.reverse = False

    def change(self, codes: list[int]) -> None:
        """Apply the codes of one escape sequence."""
        if codes[0] in (38, 48) and len(codes) == 3:
            setattr(self, "front" if codes[0] == 38 else "back", color_of(codes[2]))
            return
        for code in codes:
            if code == 0:
                self.__init__()  # type: ignore[misc]
            elif code in (1, 22):
                self.bold = code == 1
            elif code in (7, 27):
                self.reverse = code == 7
            else:
                self._color(code)

    def _color(self, code: int) -> None:
        bright = 8 if code >= 90 else 0
        kind, number = divmod(code - (60 if bright else 0), 10)
        if kind in (3, 4):
            color = None if number == 9 else COLORS[number + bright]
            setattr(self, "front" if kind == 3 else "back", color)


def color_of(number: int) -> str:
    """Return one of the 256 colours of a terminal."""
    if number < 16:
        return COLORS[number]
    if number >= 232:
        return "#" + f"{8 + 10 * (number - 232):02x}" * 3
    levels = [0, 95, 135, 175, 215, 255]
    number -= 16
    return "#" + "".join(f"{levels[number // step % 6]:02x}" for step in (36, 6, 1))


# The story.


def record(path: Path) -> None:
    """Write a command in Python, save it, and use it."""
    emacs = os.environ.get("EMACSEN", "emacs").split()[-1]
    home = Path(tempfile.mkdtemp())
    try:
        methods = home / ".config/duet-rpc/methods"
        methods.mkdir(parents=True)
        (home / "notes.txt").write_text("pear apple fig cherry\n")
        init = home / "init.el"
        init.write_text(INIT.format(elisp=TOP / "dist"))
        terminal = Terminal(home, f"{emacs} -nw -Q -l {init} {methods / 'words.py'}")
        time.sleep(2.0)
        try:
            terminal.look(0.8)
            terminal.write(PYTHON)
            terminal.type("C-x", "C-s", pause=1.2)
            terminal.type("C-x", "C-f", pause=0.1)
            terminal.write("~/notes.txt\n", pause=0.8)
            terminal.type("C-x", "h", pause=0.5)
            terminal.type("M-x", pause=0.3)
            terminal.write("sort-words")
            terminal.type("Enter", pause=1.5)
            assert "apple cherry fig pear" in terminal.screen(), terminal.screen()
        finally:
            terminal.close()
        draw(terminal.frames, path)
    finally:
        shutil.rmtree(home, ignore_errors=True)


if __name__ == "__main__":
    record(Path(sys.argv[1]))
