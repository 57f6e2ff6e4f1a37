"""What is said of an exception: what it was and where, but no folder and nothing that came in."""

from __future__ import annotations

import os

from duet_rpc.log import MESSAGE_MAX

HIDDEN_MIN = 8  # characters; what is shorter is no secret
OURS = os.path.dirname(__file__) + os.sep


def describe(error: BaseException, params: object = None) -> str:
    """Say what was raised and where, in one line, without a directory or what came in."""
    text = hide(say_what(error), params)
    place = where = None
    trace = error.__traceback__
    while trace is not None:
        code = trace.tb_frame.f_code
        # The line of the method is of more use than that of a library it calls.
        if where is None or where.startswith((OURS, "<")) or where == code.co_filename:
            where = code.co_filename
            place = f"{os.path.basename(where)}:{trace.tb_lineno} in {code.co_name}"
        trace = trace.tb_next
    return text if place is None else f"{text} ({place})"


def say_what(error: BaseException) -> str:
    """Say what was raised, without a directory."""
    try:
        text = str(error)
    except BaseException:  # noqa: BLE001 - it runs code of the user's
        text = "its message can't be read"
    if isinstance(error, OSError) and isinstance(error.filename, (str, bytes)):
        text = f"{error.strerror}: {os.path.basename(os.fsdecode(error.filename))}"
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def hide(text: str, params: object) -> str:
    """Take out of a text what the caller sent, unless it is too short to be a secret."""
    text = text[: 4 * MESSAGE_MAX]
    waiting = [params]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            waiting += [*value, *value.values()]
        elif isinstance(value, list):
            waiting += value
        else:
            for form in (str(value), repr(value)[1:-1]):
                if len(form) >= HIDDEN_MIN:
                    text = text.replace(form, "…")
    return text
