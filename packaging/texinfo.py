"""Turn the pages of the documentation into Texinfo, from which makeinfo makes the Info manual.

Only what the pages use is known here. Anything else, such as HTML or a link to a section that
does not exist, is an error: the manual never silently lacks something.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from markdown_it import MarkdownIt
from markdown_it.tree import SyntaxTreeNode

LEVELS = {"h1": "chapter", "h2": "section", "h3": "subsection", "h4": "subsubsection"}
WIDTH = 72
"""Columns that a table may take in Info."""


class MarkdownError(Exception):
    """A page has something that cannot be in the manual; the text says where."""


@dataclass
class Section:
    """A heading and what stands below it, up to the next heading."""

    tag: str
    title: SyntaxTreeNode
    node: str
    blocks: list[SyntaxTreeNode] = field(default_factory=list)


class Manual:
    """The pages, by path, and the names of their sections."""

    def __init__(self, pages: dict[str, str], repository: str) -> None:
        self._repository = repository
        self._anchors: dict[tuple[str, str], str] = {}
        self._pages: dict[str, list[Section]] = {}
        self._page = ""
        parser = MarkdownIt("commonmark").enable("table")
        trees = {path: SyntaxTreeNode(parser.parse(text)) for path, text in pages.items()}
        # A chapter and a section of another may have the same title. The chapter keeps it.
        self._chapters = {path: title_of(path, tree) for path, tree in trees.items()}
        for path, tree in trees.items():
            self._pages[path] = self._split(path, tree)

    def texinfo(self) -> str:
        """Return the chapters, with a menu for each node that has others below it."""
        parts = [menu(list(self._chapters.values()))]
        for path, sections in self._pages.items():
            self._page = path
            for at, section in enumerate(sections):
                parts.append(self._section(section, children(sections, at)))
        return "\n".join(parts)

    def _split(self, path: str, tree: SyntaxTreeNode) -> list[Section]:
        sections: list[Section] = []
        for block in tree.children:
            if block.type == "heading":
                title = plain(block.children[0])
                node = self._name_node(title, path) if sections else self._chapters[path]
                slug = re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")
                self._anchors[path, slug] = node
                self._anchors.setdefault((path, ""), node)
                sections.append(Section(block.tag, block.children[0], node))
            elif sections:
                sections[-1].blocks.append(block)
        return sections

    def _name_node(self, title: str, path: str) -> str:
        """Return a name that no other node has."""
        taken = {*self._chapters.values(), *self._anchors.values()}
        name = node_name(title)
        return f"{self._chapters[path]} - {name}" if name in taken else name

    def _section(self, section: Section, below: list[str]) -> str:
        title = self._inline(section.title)
        lines = [
            f"@node {section.node}",
            f"@{LEVELS[section.tag]} {title}",
            f"@cindex {title}",
            *(self._block(block) for block in section.blocks),
            menu(below),
        ]
        return "\n".join(lines)

    def _block(self, block: SyntaxTreeNode) -> str:
        if block.type == "paragraph":
            return f"\n{self._inline(block.children[0])}\n"
        if block.type in ("fence", "code_block"):
            return f"\n@example\n{escape(block.content)}@end example\n"
        if block.type in ("bullet_list", "ordered_list"):
            kind = "itemize @bullet" if block.type == "bullet_list" else "enumerate"
            items = "".join(f"@item{self._blocks(item)}" for item in block.children)
            return f"\n@{kind}\n{items}@end {kind.split()[0]}\n"
        if block.type == "blockquote":
            return f"\n@quotation{self._blocks(block)}@end quotation\n"
        if block.type == "table":
            return self._table(block)
        if block.type == "html_block" and block.content.startswith("<!--"):
            return ""
        raise self._unknown(block)

    def _blocks(self, parent: SyntaxTreeNode) -> str:
        return "".join(self._block(block) for block in parent.children)

    def _table(self, table: SyntaxTreeNode) -> str:
        head, *bodies = table.children
        (titles,) = head.children
        rows = [row for body in bodies for row in body.children]
        cells = [[self._cell(cell) for cell in row.children] for row in rows]
        fractions = " ".join(f"{width:.2f}" for width in shares([titles, *rows]))
        lines = [f"@multitable @columnfractions {fractions}"]
        lines.append("@headitem " + " @tab ".join(self._cell(cell) for cell in titles.children))
        for row, texts in zip(rows, cells):
            lines.append("@item " + " @tab ".join(texts))
            # What a row is about can be found with `i` in Info.
            first = row.children[0].children
            codes = (
                [each for each in first[0].children if each.type == "code_inline"] if first else []
            )
            lines += [f"@cindex {escape(each.content)}" for each in codes]
        return "\n" + "\n".join([*lines, "@end multitable"]) + "\n"

    def _cell(self, cell: SyntaxTreeNode) -> str:
        return " ".join(self._inline(each) for each in cell.children).replace("\n", " ")

    def _inline(self, parent: SyntaxTreeNode) -> str:
        return "".join(self._span(span) for span in parent.children)

    def _span(self, span: SyntaxTreeNode) -> str:
        if span.type == "text":
            return escape(span.content).replace("--", "-@w{}-")  # which would be a dash
        if span.type == "softbreak":
            return "\n"
        if span.type == "hardbreak":
            return "@*\n"
        if span.type == "code_inline":
            return f"@code{{{escape(span.content)}}}"
        if span.type in ("strong", "em"):
            return f"@{span.type.replace('em', 'emph')}{{{self._inline(span)}}}"
        if span.type == "image":
            return f"[{escape(span.content)}]"
        if span.type == "link":
            return self._link(span)
        if span.type == "html_inline" and span.content.startswith("<!--"):
            return ""
        raise self._unknown(span)

    def _link(self, link: SyntaxTreeNode) -> str:
        target = str(link.attrs["href"])
        label = self._inline(link)
        if re.match(r"[a-z]+:", target):
            return f"@uref{{{escape(target).replace(',', '@comma{}')}, {label}}}"
        path, _, slug = target.partition("#")
        path = normal_path(self._page, path)
        if (path, slug) in self._anchors:
            node = self._anchors[path, slug]
            return (
                f"@ref{{{node}}}" if plain(link).endswith(".md") else f"{label} (@pxref{{{node}}})"
            )
        if path in self._pages:
            raise MarkdownError(f"{self._page}: links to {target}, which has no such section")
        return f"@uref{{{self._repository}/blob/main/{path}, {label}}}"

    def _unknown(self, node: SyntaxTreeNode) -> MarkdownError:
        return MarkdownError(f"{self._page}: the manual cannot have {node.type}: {node.content!r}")


def title_of(path: str, tree: SyntaxTreeNode) -> str:
    """Return the name of the node of a page: its first heading."""
    for block in tree.children:
        if block.type == "heading":
            return node_name(plain(block.children[0]))
        if block.type != "html_block":
            break
    raise MarkdownError(f"{path}: does not begin with a heading")


def node_name(title: str) -> str:
    """Return a title without what Info cannot have in the name of a node."""
    return " ".join(re.sub(r"[.,:()@{}]", " ", title).split())


def normal_path(page: str, path: str) -> str:
    """Return a path that a page links to, relative to the top of the repository."""
    if not path:
        return page
    parts: list[str] = []
    for part in (PurePosixPath(page).parent / path).parts:
        parts = parts[:-1] if part == ".." else [*parts, part]
    return "/".join(parts)


def plain(node: SyntaxTreeNode) -> str:
    """Return the text of a heading or a link without its markup."""
    if node.type in ("text", "code_inline"):
        return node.content
    return "".join(map(plain, node.children))


def escape(text: str) -> str:
    """Return a text in which nothing is a command of Texinfo."""
    return re.sub(r"([@{}])", r"@\1", text)


def shares(rows: list[SyntaxTreeNode]) -> list[float]:
    """Return which part of the width each column of a table gets, by its longest cell."""
    columns = zip(*(row.children for row in rows))
    longest = [max(len(plain(cell)) for cell in column) + 5 for column in columns]
    given = dict.fromkeys(range(len(longest)), 0.0)
    free = float(WIDTH)
    # The narrow ones get what they need, the others share what is left.
    for done, at in enumerate(sorted(given, key=longest.__getitem__)):
        given[at] = min(longest[at], free / (len(longest) - done))
        free -= given[at]
    return [width / WIDTH for width in given.values()]


def children(sections: list[Section], at: int) -> list[str]:
    """Return the nodes one level below a section."""
    below = []
    for section in sections[at + 1 :]:
        if section.tag <= sections[at].tag:
            break
        if int(section.tag[1]) == int(sections[at].tag[1]) + 1:
            below.append(section.node)
    return below


def menu(nodes: list[str]) -> str:
    """Return the menu of a node, or nothing."""
    entries = "".join(f"* {node}::\n" for node in nodes)
    return f"\n@menu\n{entries}@end menu\n" if nodes else ""
