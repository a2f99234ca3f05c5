"""Reads the Markdown of notebooks and pages: emphasised words, links, headings, the glossary's rows."""

import re
from collections.abc import Iterator

import mistune

# Math is taken as such, so that its asterisks are not emphasis; code never is.
PARSE = mistune.create_markdown(renderer="ast", plugins=["math", "table"])


def nodes(text: str) -> Iterator[dict]:
    """Every node of a Markdown text, outer before inner."""
    waiting = list(PARSE(text))
    while waiting:
        node = waiting.pop(0)
        yield node
        waiting = node.get("children", []) + waiting


def plain(node: dict) -> str:
    """The text of a node without its marks."""
    own = " " if node["type"] in {"softbreak", "linebreak"} else node.get("raw", "")
    return own + "".join(map(plain, node.get("children", [])))


def italics(text: str) -> list[str]:
    """What stands in italics, bold italics among it."""
    return [plain(node) for node in nodes(text) if node["type"] == "emphasis"]


def links(text: str) -> list[str]:
    """Targets of links and pictures."""
    return [node["attrs"]["url"] for node in nodes(text) if node["type"] in {"link", "image"}]


def anchors(text: str) -> set[str]:
    """What `#…` may name in a page: its headings as GitHub spells them."""
    headings = [plain(node) for node in nodes(text) if node["type"] == "heading"]
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def glossary_rows(text: str) -> list[tuple[str, str, str]]:
    """(word, Chinese, meaning) of every row of the glossary; a row of another length is a ValueError."""
    rows = [node for node in nodes(text) if node["type"] == "table_row"]
    cells = [[plain(cell).strip() for cell in row["children"]] for row in rows]
    if any(len(row) != 3 for row in cells):
        raise ValueError(f"not three columns: {next(row for row in cells if len(row) != 3)}")
    return [tuple(row) for row in cells]


def words(rows: list[tuple[str, str, str]]) -> list[str]:
    """The glossary's words, singular and in small letters; a row may hold several, with commas."""
    return [word.strip().lower() for row in rows for word in row[0].split(",")]


def forms(word: str) -> set[str]:
    """What a word of a text may be in the glossary: itself, without its plural or possessive ending."""
    word = re.sub(r"['’]s?$", "", " ".join(word.lower().split()))
    endings = [("s", ""), ("es", ""), ("ies", "y"), ("ices", "ix")]
    return {word} | {word.removesuffix(end) + new for end, new in endings if word.endswith(end)}
