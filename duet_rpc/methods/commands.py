"""Where the parameters of an Emacs command come from: `text: Region` is the region.

To Python, to a terminal and to an AI client these types are `str` and `int`. Only Emacs looks at
what stands beside them, and fills the parameters in instead of prompting for them.

Every file of methods imports this, and so does the daemon before its first reply: nothing but the
types is here. Options of `@command` are checked in `command_options`.
"""

from __future__ import annotations

from typing import Annotated

from duet_rpc.jsonrpc.values import Value, set_field


class Source(Value):
    """A place in Emacs, by the name that `x-command` has for it."""

    __slots__ = ("kind", "meaning")

    def __init__(self, kind: str, meaning: str) -> None:
        set_field(self, "kind", kind)
        set_field(self, "meaning", meaning)  # for callers who have to give the value themselves

    kind: str
    meaning: str

    def as_json(self) -> object:
        """Return it as `x-command` has it."""
        return self.kind


class Lisp(Source):
    """A Lisp expression that Emacs evaluates in the buffer in which the command is called."""

    __slots__ = ("form",)

    def __init__(self, form: str) -> None:
        if not isinstance(form, str):
            raise TypeError('Lisp takes the text of an expression, such as Lisp("(buffer-name)")')
        if not form.strip():
            raise ValueError('Lisp needs an expression, such as Lisp("(buffer-name)")')
        super().__init__("lisp", f"the value of {form} in Emacs")
        set_field(self, "form", form)

    form: str

    def as_json(self) -> object:
        """Return it as `x-command` has it."""
        return {"lisp": self.form}


Region = Annotated[str, Source("region", "the region, or the whole buffer")]
Buffer = Annotated[str, Source("buffer", "the text of the buffer")]
Line = Annotated[str, Source("line", "the line that point is in")]
SymbolAtPoint = Annotated[str, Source("symbol", "the symbol at point")]
FileName = Annotated[str, Source("file", "the name of the file that the buffer visits")]
Point = Annotated[int, Source("point", "the position of point, counted from 0")]
MajorMode = Annotated[str, Source("mode", "the major mode, such as org-mode")]
PrefixArg = Annotated[int, Source("prefix", "the prefix argument as a number; 1 without one")]
