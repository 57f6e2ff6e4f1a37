"""URIs of resources: what a template matches, and what it never does."""

from __future__ import annotations

from time import perf_counter

import pytest

from duet_rpc.methods.uri_template import UriTemplate


@pytest.mark.parametrize(
    ("template", "uri", "values"),
    [
        ("notes://{name}", "notes://todo", {"name": "todo"}),
        ("notes://{name}", "notes://a%20b%C3%A4", {"name": "a bä"}),
        ("notes://{name}", "notes://100%2525", {"name": "100%25"}),
        ("notes://{name}", "notes://..hidden", {"name": "..hidden"}),
        ("notes://{name}.md", "notes://a.md.md", {"name": "a.md"}),
        ("x://{a}/{b}", "x://1/2", {"a": "1", "b": "2"}),
        ("x://{a}-{b}", "x://1-2-3", {"a": "1", "b": "2-3"}),
        ("docs://{+path}", "docs://a/b/c.md", {"path": "a/b/c.md"}),
        ("docs://{+path}", "docs://a%2Fb", {"path": "a/b"}),
        ("docs://{user}/{+path}/raw", "docs://me/a/raw/raw", {"user": "me", "path": "a/raw"}),
        ("config://main", "config://main", {}),
    ],
)
def test_a_template_gives_its_variables(template: str, uri: str, values: object) -> None:
    assert UriTemplate(template).match(uri) == values


@pytest.mark.parametrize(
    ("template", "uri"),
    [
        ("notes://{name}", "notes://"),
        ("notes://{name}", "notes://a/b"),
        ("notes://{name}", "notes://a?b"),
        ("notes://{name}", "notes://a#b"),
        ("notes://{name}", "NOTES://a"),
        ("notes://{name}", "mynotes://a"),
        ("notes://{name}.md", "notes://.md"),
        ("notes://{name}.md", "notes://amd"),
        ("x://{a}/{b}", "x://1/"),
        ("x://{a}/{b}", "x:///2"),
        ("x://{a}/{b}", "x://1/2/3"),
        ("config://main", "config://main/"),
        ("config://main", "config://main?x"),
        ("notes://{name}", "notes://" + "a" * 10_000),
    ],
)
def test_a_template_does_not_match_too_much(template: str, uri: str) -> None:
    assert UriTemplate(template).match(uri) is None


@pytest.mark.parametrize(
    "value",
    [
        "..", ".", "%2e%2e", "%2E.", "..%2fetc", "a%2fb", "a%2Fb", "a%5cb", "..%5c..", "%2fetc",
        "a%00b", "%ff", "a\\b", "\\",
    ],
)  # fmt: skip
def test_a_name_never_leads_out_of_a_folder(value: str) -> None:
    assert UriTemplate("notes://{name}").match(f"notes://{value}") is None


@pytest.mark.parametrize(
    "value",
    [
        "..", "../x", "a/../../x", "a/../x", "a/..", "./a", "/etc/passwd", "%2fetc", "a/%2e%2e/b",
        "a%2f..%2fb", "a\\..\\b", "\\\\host\\share", "c:/x", "C%3A%5Cx", "a%00", "a?b",
    ],
)  # fmt: skip
def test_a_path_never_leads_out_of_a_folder(value: str) -> None:
    assert UriTemplate("docs://{+path}").match(f"docs://{value}") is None


@pytest.mark.parametrize(
    ("template", "words"),
    [
        ("notes", "begins with a scheme"),
        ("{name}", "begins with a scheme"),
        ("notes://{name", "variables are written {name}"),
        ("notes://{na me}", "variables are written {name}"),
        ("notes://{path*}", "variables are written {name}"),
        ("notes://{?limit}", "variables are written {name}"),
        ("notes://meine notizen", "' ' can't stand in a URI"),
        ("notes://ü", "percent-encode it"),
        ("notes://{a}{b}", "something between two variables"),
        ("notes://{a}/{a}", "twice"),
        ("notes://{+a}/{b}", "only be the last"),
    ],
)
def test_a_wrong_template_says_what_is_wrong(template: str, words: str) -> None:
    with pytest.raises(ValueError, match=words.replace("{", r"\{")):
        UriTemplate(template)


def test_matching_takes_linear_time() -> None:
    template = UriTemplate("x://" + "-".join(f"{{v{n}}}" for n in range(40)) + "!")
    began = perf_counter()
    assert template.match("x://" + "-" * 8000) is None
    assert perf_counter() - began < 0.1
