"""What `@resource` and `@prompt` were given, checked when their file is loaded."""

from __future__ import annotations

import collections.abc
import typing
from typing import TYPE_CHECKING, Any

from duet_rpc.methods.offers import Prompt, Resource
from duet_rpc.methods.results import Message
from duet_rpc.methods.schema import Unsupported
from duet_rpc.methods.schema.hints import UNIONS
from duet_rpc.methods.uri_template import UriTemplate

if TYPE_CHECKING:
    from duet_rpc.methods.method import Method


def read_resource(method: Method, uri: object, mime: object) -> Resource:
    """Check what `@resource` was given against the parameters of its function."""
    if not isinstance(uri, str):
        raise Unsupported('`@resource` needs a URI: `@resource("notes://{name}")`')
    try:
        template = UriTemplate(str.__str__(uri))
    except ValueError as error:
        raise Unsupported(f"the URI {uri!r}: {error}") from None
    for name in template.names:
        if name not in method.params:
            raise Unsupported(f"the URI has {{{name}}}, but the function has no parameter {name}")
    for name, param in method.params.items():
        if param.required and name not in template.names:
            raise Unsupported(f"parameter {name} needs a place in the URI, or a default")
    if mime is None:
        return Resource(template, None)
    if not isinstance(mime, str) or "/" not in mime or not mime.isprintable():
        raise Unsupported('mime_type must be a text such as "text/markdown"')
    return Resource(template, str.__str__(mime))


def read_prompt(hint: object) -> Prompt:
    """Check that a prompt returns messages."""
    if not _is_messages(hint):
        raise Unsupported("a prompt returns str, Message or a list of those")
    return Prompt()


def _is_messages(hint: object) -> bool:
    if hint in (str, Message, Any, list):
        return True
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in UNIONS:
        return all(map(_is_messages, arguments))
    return origin in LISTS and _is_messages(arguments[0])


LISTS = (list, collections.abc.Sequence, collections.abc.Iterator, collections.abc.Generator)
