"""Rename a symbol in several files: ask for the new name, which files, and whether to do it."""

import json
import re
from contextlib import suppress
from pathlib import Path

from duet_rpc import Context, FileName, SymbolAtPoint, Unsupported, command

REVERT = (
    "(let ((b (find-buffer-visiting %s))) (if b (with-current-buffer b (revert-buffer t t t))))"
)


@command(result="message", destructive=True)
def rename_symbol(symbol: SymbolAtPoint, file: FileName, ctx: Context) -> str:
    """Rename the symbol at point in the files of this kind in its folder."""
    with suppress(Unsupported):  # in a terminal there is nothing to save
        ctx.emacs.call("save-some-buffers", True)
    word = re.compile(rf"(?<![\w-]){re.escape(symbol)}(?![\w-])")
    folder, kind = Path(file).parent, Path(file).suffix
    found = {}
    for path in sorted(folder.glob(f"*{kind}")):
        count = len(word.findall(path.read_text()))
        if count:
            found[path.name] = f"{count} times"
    if not found:
        return f"{symbol} is in none of the files {folder}/*{kind}"
    new = ctx.ask(f"Rename {symbol} to?", default=symbol)
    names = ctx.choose("In which files?", found, multiple=True, default=list(found))
    if not ctx.confirm(f"Change {len(names)} of {len(found)} files?"):
        return "Nothing was changed"
    for name in names:
        path = folder / name
        path.write_text(word.sub(lambda _: new, path.read_text()))
        with suppress(Unsupported):
            ctx.emacs.eval(REVERT % json.dumps(str(path), ensure_ascii=False))
    return f"{symbol} is {new} now in {', '.join(names)}"
