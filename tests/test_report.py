"""The report as a page: no code, nothing from elsewhere, no links into the repository; PDF by Chromium."""

import re
import shutil

import nbformat
import pytest

from experiments import report

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
HEAD = "<table><caption>c</caption>\n<thead><tr><th>a</th></tr></thead>\n"
TABLE = f'<div class="report-table">{HEAD}%s</table></div>'
REMOTE = re.compile(
    r"""<(?:script|link|iframe|object|embed|video|audio|source)\b|<img[^>]+src=["'](?!data:)|url\(["']?(?!data:|\#)"""
    r"""|@import|src=["']https?:""",
    re.IGNORECASE,
)


def output(**data) -> nbformat.NotebookNode:
    named = {"png": "image/png", "html": "text/html", "markdown": "text/markdown", "plain": "text/plain"}
    made = {named[name]: value for name, value in data.items()}
    return nbformat.v4.new_output("display_data", data={"text/plain": "…", **made})


def small_notebook() -> nbformat.NotebookNode:
    hidden = nbformat.v4.new_markdown_cell("only for *readers* of the notebook")
    hidden.metadata["tags"] = [report.HIDDEN]
    code = nbformat.v4.new_code_cell("secret = 1\nshow(secret)", execution_count=1)
    code.outputs = [
        output(html=TABLE % "<tr><td>1</td></tr>"),
        output(png=PIXEL),
        output(markdown="**bold**"),
    ]
    first = "# 20 · What now?\n\nSee [08](08_naive.ipynb), [section](#2.-Then) and [paper](https://example.org/x)."
    texts = ["## Summary\n\nShort.", "## 1. First\n\nLong.", "## 2. Then\n\nEnd."]
    return nbformat.v4.new_notebook(
        cells=[nbformat.v4.new_markdown_cell(first), hidden, code, *map(nbformat.v4.new_markdown_cell, texts)]
    )


@pytest.fixture(scope="module")
def page() -> str:
    return report.as_page(small_notebook())


def test_code_and_hidden_cells_are_left_out(page):
    assert "secret" not in page
    assert "of the notebook" not in page
    assert "<strong>bold</strong>" in page
    assert f"data:image/png;base64,{PIXEL}" in page.replace("\n", "")


def test_the_title_has_no_number(page):
    assert "<title>minillm: What now?</title>" in page
    assert not re.search(r"<h1[^>]*>\s*20", page)


def test_links_into_the_repository_are_text_and_others_stay(page):
    assert "08_naive.ipynb" not in page
    assert "See 08, " in page
    assert 'href="https://example.org/x"' in page
    assert 'href="#2.-Then"' in page


def test_contents_come_after_the_summary(page):
    assert page.index("Short.") < page.index("<nav>") < page.index("Long.")
    assert '<nav><a href="#1.-First">1. First</a><a href="#2.-Then">2. Then</a></nav>' in page


@pytest.mark.parametrize(("rows", "short"), [(report.SHORT_ROWS, True), (report.SHORT_ROWS + 1, False)])
def test_only_short_tables_stay_on_one_page(rows, short):
    made = report.tidy(TABLE % ("<tr><td>1</td></tr>" * rows))
    assert ('class="report-table short"' in made) == short


@pytest.mark.parametrize(
    "text",
    [
        '<script src="x.js">',
        '<link rel="stylesheet" href="x.css">',
        '<img alt="" src="https://x.org/a.png">',
        "@import 'a.css'",
        "background: url(https://x.org/a.png)",
    ],
)
def test_what_comes_from_elsewhere_is_found(text):
    assert REMOTE.search(text)


def test_nothing_comes_from_elsewhere(page):
    assert REMOTE.findall(page) == []
    assert "mathjax" not in page.lower()


def test_the_stored_report_is_a_page(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(report, "BROWSERS", ())
    assert report.main(["--as-stored", "--to", str(tmp_path)]) == 0
    said = capsys.readouterr().out
    text = (tmp_path / "minillm-report.html").read_text(encoding="utf-8")
    assert "no PDF: none of " in said
    assert not (tmp_path / "minillm-report.pdf").exists()
    assert text.count("data:image/") >= 3
    assert text.index('id="Summary"') < text.index("<nav>")
    assert "import sys" not in text
    assert REMOTE.findall(text) == []


def test_a_cell_that_fails_is_one_message_and_no_page(tmp_path, monkeypatch, capsys):
    broken = tmp_path / "20_report.ipynb"
    cell = nbformat.v4.new_code_cell("raise ValueError('no such result')")
    nbformat.write(nbformat.v4.new_notebook(cells=[cell]), broken)
    monkeypatch.setattr(report, "NOTEBOOK", broken)
    assert report.main(["--to", str(tmp_path / "made")]) == 1
    assert "no such result" in capsys.readouterr().err
    assert not (tmp_path / "made" / "minillm-report.html").exists()


def test_chromium_prints_it(tmp_path, page):
    if not any(map(shutil.which, report.BROWSERS)):
        pytest.skip(f"no browser: none of {', '.join(report.BROWSERS)} is installed")
    path = tmp_path / "small.html"
    path.write_text(page, encoding="utf-8")
    assert report.print_pdf(path) == 0
    assert (tmp_path / "small.pdf").read_bytes().startswith(b"%PDF")


def test_a_browser_that_makes_nothing_is_a_failure(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(report, "BROWSERS", ("true",))
    path = tmp_path / "small.html"
    path.write_text("<p>text</p>", encoding="utf-8")
    assert report.print_pdf(path) == 1
    assert "made no PDF" in capsys.readouterr().err
