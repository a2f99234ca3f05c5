"""The glossary explains every word in italics, each once and with its Chinese term; links lead somewhere."""

import json
import re
from pathlib import Path
from urllib.parse import unquote

import markdown_text
import pytest

ROOT = Path(__file__).resolve().parent.parent
NOTEBOOKS = sorted(ROOT.glob("notebooks/[0-9][0-9]_*.ipynb"))
GLOSSARY = (ROOT / "notebooks" / "glossary.md").read_text(encoding="utf-8")
CHINESE = re.compile("[\u4e00-\u9fff]")
ROW = "| word | 中文 | meaning |\n| --- | --- | --- |\n| decoder layer | 解码器层 | attention and MLP |\n"


def markdown_of(path: Path) -> str:
    """The text of a page, or of a notebook's Markdown cells."""
    text = path.read_text(encoding="utf-8")
    if path.suffix != ".ipynb":
        return text
    cells = [cell for cell in json.loads(text)["cells"] if cell["cell_type"] == "markdown"]
    return "\n\n".join("".join(cell["source"]) for cell in cells)


def unexplained(text: str, glossary: str) -> list[str]:
    """Words in italics that the glossary does not have; first cells write *italics* so, too."""
    known = {"italics", *markdown_text.words(markdown_text.glossary_rows(glossary))}
    return [word for word in markdown_text.italics(text) if not markdown_text.forms(word) & known]


def glossary_faults(glossary: str) -> list[str]:
    """Rows without a Chinese term or a meaning, and words that are explained twice."""
    rows = markdown_text.glossary_rows(glossary)
    words = markdown_text.words(rows)
    faults = [row[0] for row in rows if not CHINESE.search(row[1]) or not row[2]]
    return faults + sorted({word for word in words if words.count(word) > 1})


def broken_links(path: Path, text: str) -> list[str]:
    """Links to files that are not there, and to headings that a page does not have; none that are remote."""
    broken = []
    for link in markdown_text.links(text):
        name, _, heading = unquote(link).partition("#")
        target = path.parent / name if name else path
        if re.match(r"[a-z]+:", link):
            continue
        known = markdown_text.anchors(markdown_of(target)) if heading and target.is_file() else {heading}
        if not target.exists() or heading not in known:
            broken.append(link)
    return broken


# ---- each rule finds what breaks it ----


@pytest.mark.parametrize(
    "text",
    [
        "a *decoder layer*",
        "*decoder layers*",
        "*decoder\nlayer*’s",
        "*Decoder layer's* norm",
        "_decoder layer_",
    ],
)
def test_a_word_in_another_form_is_known(text):
    assert markdown_text.italics(text)
    assert unexplained(text, ROW) == []


@pytest.mark.parametrize(
    "text", ["**not this**", "`a *b* c`", "```\n*b*\n```", "$x*y*z$", "$$\na*b*c\n$$", "2 * 3 * 4"]
)
def test_only_italics_count(text):
    assert unexplained(text, ROW) == []


@pytest.mark.parametrize(
    "text", ["an *encoder layer*", "| a |\n| --- |\n| *b* |", "# *x*", "- *y*", "**bold *z***"]
)
def test_an_unknown_word_is_found(text):
    assert len(unexplained(text, ROW)) == 1


def test_faults_of_a_glossary_are_found():
    assert glossary_faults(ROW) == []
    assert glossary_faults(ROW + "| head | output layer | scores |") == ["head"]
    assert glossary_faults(ROW + "| head | 输出层 | |") == ["head"]
    assert glossary_faults(ROW + "| Decoder layer, block | 层 | again |") == ["decoder layer"]
    with pytest.raises(ValueError, match="not three columns"):
        glossary_faults("| a | b |\n| --- | --- |\n| x | y |")


def test_broken_links_are_found(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("# Here it is\n\n## 中文 · 2, *too*")
    good = "[a](page.md) [b](page.md#here-it-is) [c](#中文--2-too) [d](https://example.org/x) <https://x.org>"
    assert broken_links(page, page.read_text() + good) == []
    assert broken_links(page, "[a](pages.md) ![b](x.png) [c](page.md#there) [d](page%20.md)") == [
        "pages.md", "x.png", "page.md#there", "page%20.md",
    ]  # fmt: skip


# ---- and ours has none ----


def test_each_word_is_explained_once_in_both_languages():
    assert len(markdown_text.glossary_rows(GLOSSARY)) > 20
    assert glossary_faults(GLOSSARY) == []


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_words_in_italics_are_in_the_glossary(path):
    text = markdown_of(path)
    assert "glossary.md" in markdown_text.links(text)
    assert markdown_text.italics(text)
    assert unexplained(text, GLOSSARY) == []


def pages() -> list[Path]:
    found = [*NOTEBOOKS, *ROOT.glob("*.md"), *ROOT.glob("notebooks/*.md"), *ROOT.glob("data/**/*.md")]
    return sorted(found)


@pytest.mark.parametrize("path", pages(), ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(path):
    assert broken_links(path, markdown_of(path)) == []
