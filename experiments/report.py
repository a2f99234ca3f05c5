"""The report as a page of its own: notebook 20, executed, without its code, in build/report/.

    python -m experiments.report                 minillm-report.html, and minillm-report.pdf by Chromium
    python -m experiments.report --as-stored     from the outputs that the notebook holds, without running it

All is in the one HTML file: figures, style, no script, nothing that is fetched from elsewhere.
"""

import argparse
import html
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import nbformat
from nbclient.exceptions import CellExecutionError, CellTimeoutError
from nbconvert import HTMLExporter

from experiments import execute
from experiments.machine import ROOT
from experiments.report_results import Archive

NOTEBOOK = ROOT / "notebooks" / "20_report.ipynb"
FOLDER = ROOT / "build" / "report"
NAME = "minillm-report"
STYLE = Path(__file__).with_name("report.css")
HIDDEN = "remove-cell"  # tag of cells that only readers of the notebook need
SHORT_ROWS = 12  # a table of at most so many stays on one page
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")
PRINT_S = 120
SVG = ["--InlineBackend.figure_formats={'svg'}"]  # sharp at any size


def main(arguments: list[str] | None = None) -> int:
    """Write the pages; exit status 1 when a cell fails or Chromium does."""
    parser = argparse.ArgumentParser("./run_all.sh report", description=__doc__.split("\n")[0])
    parser.add_argument("--to", type=Path, default=FOLDER, metavar="FOLDER", help="default: build/report")
    parser.add_argument("--as-stored", action="store_true", help="do not run the notebook again")
    options = parser.parse_args(arguments)
    source = NOTEBOOK
    if not options.as_stored:
        source = options.to / NOTEBOOK.name
        try:
            execute.run(NOTEBOOK, source, kernel_arguments=SVG)
        except (CellExecutionError, CellTimeoutError) as error:
            print(f"{NOTEBOOK.name}: {error}", file=sys.stderr)
            return 1
    page = options.to / f"{NAME}.html"
    page.parent.mkdir(parents=True, exist_ok=True)
    page.write_text(as_page(nbformat.read(source, as_version=4)), encoding="utf-8")
    print(f"wrote {shown(page)}")
    return print_pdf(page)


def shown(path: Path) -> str:
    """A path as it is seen from the repository."""
    return str(path.relative_to(ROOT) if path.is_relative_to(ROOT) else path)


# ---- HTML ----


def as_page(notebook: nbformat.NotebookNode) -> str:
    """A whole page from a notebook's text and outputs."""
    body = with_contents(tidy(body_of(notebook)))
    title = re.search(r"<h1[^>]*>(.*?)</h1>", body, re.DOTALL)
    name = re.sub(r"<[^>]+>", "", title[1]).strip() if title else NAME
    head = f'<meta charset="utf-8"><title>minillm: {name}</title>\n<style>\n{STYLE.read_text()}</style>'
    parts = (
        '<!DOCTYPE html>\n<html lang="en">',
        f"<head>{head}</head>",
        "<body>",
        header(),
        body,
        "</body></html>\n",
    )
    return "\n".join(parts)


def body_of(notebook: nbformat.NotebookNode) -> str:
    """Text and outputs as HTML, without code and prompts."""
    kept = [cell for cell in notebook.cells if HIDDEN not in cell.metadata.get("tags", [])]
    notebook = nbformat.from_dict({**notebook, "cells": kept})
    exporter = HTMLExporter(template_name="basic", exclude_input=True, anchor_link_text="")
    exporter.exclude_input_prompt = exporter.exclude_output_prompt = True
    return exporter.from_notebook_node(notebook)[0]


def header() -> str:
    """What the page is and how new its results are."""
    days = sorted(stored.date for stored in Archive().all())
    when = f"results of {days[0]} to {days[-1]}" if days else "no results are stored"
    return f"<header>minillm · a course in LLM inference where memory is short · {html.escape(when)}</header>"


def tidy(body: str) -> str:
    """Links that lead into the repository become text; tables and figures keep together on paper."""
    body = re.sub(r"(<h1[^>]*>)\s*\d\d · ", r"\1", body)
    body = re.sub(r'<a class="anchor-link"[^>]*></a>', "", body)
    body = re.sub(r'<a href="(?!https?:|#)[^"]*"[^>]*>(.*?)</a>', r"\1", body, flags=re.DOTALL)
    body = re.sub(r'<div class="report-table">.*?</table>', _table, body, flags=re.DOTALL)
    body = body.replace('alt="No description has been provided for this image"', 'alt="figure"')
    return re.sub(r"<(svg|img)\b", r'<\1 class="figure-box"', body)


def _table(found: re.Match) -> str:
    short = found[0].count("<tr") <= SHORT_ROWS + 1
    return found[0].replace('class="report-table"', 'class="report-table short"', 1) if short else found[0]


def with_contents(body: str) -> str:
    """The list of sections, after the first of them: a summary comes before everything."""
    sections = re.findall(r'<h2 id="([^"]+)"[^>]*>(.*?)</h2>', body, re.DOTALL)
    if len(sections) < 3:
        return body
    links = "".join(f'<a href="#{name}">{text.strip()}</a>' for name, text in sections[1:])
    place = body.index(f'<h2 id="{sections[1][0]}"')
    return f"{body[:place]}<nav>{links}</nav>\n{body[place:]}"


# ---- PDF ----


def print_pdf(page: Path) -> int:
    """The page as PDF beside it; without a Chromium a line says so, and that is no failure."""
    browser = next((path for path in map(shutil.which, BROWSERS) if path), None)
    if browser is None:
        print(f"no PDF: none of {', '.join(BROWSERS)} is installed; any browser prints the HTML page")
        return 0
    target = page.with_suffix(".pdf")
    target.unlink(missing_ok=True)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        words = [browser, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
        words += [f"--user-data-dir={profile}", "--no-pdf-header-footer"]
        words += [f"--print-to-pdf={target.resolve()}", page.resolve().as_uri()]
        try:
            said = subprocess.run(words, capture_output=True, text=True, timeout=PRINT_S).stderr.strip()
        except subprocess.TimeoutExpired:
            said = f"not done after {PRINT_S} s"
    if not target.is_file():
        print(f"{browser} made no PDF: {said[-400:]}", file=sys.stderr)
        return 1
    print(f"wrote {shown(target)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
