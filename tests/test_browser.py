"""Notebooks as a learner meets them: JupyterLab in headless Chromium, run from the top, widgets moved."""

import json
import shutil
import time
from pathlib import Path

import pytest
from lab_in_browser import PATIENCE_S, ROOT, Lab, find_browser, running_browser, running_lab, wait_until
from small_notebooks import notebook

from experiments import student

NUMBERS = ("00", "02", "05")
ERRORS = '[data-mime-type="application/vnd.jupyter.error"]'
# What `interact` makes of our controls, and how each is moved; anything else inside it would go untested.
MOVED = ".widget-slider, .widget-dropdown, .widget-checkbox"

pytestmark = pytest.mark.browser

# Three controls, of which each changes the figure; in the second widget the slider b does nothing.
WIDGETS = """import matplotlib.pyplot as plt
from ipywidgets import Dropdown, FloatLogSlider, IntSlider, interact
def draw(a, b, c):
    plt.figure(figsize=(2, 1)); plt.title(f"{a} {b:.2f} {c}"); plt.show()
def forgets(a, b): draw(a, 0, 0)
def make():
    return {"a": IntSlider(value=4, max=4), "b": FloatLogSlider(value=3, min=0, max=2)}"""


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    """The course in a temporary folder without outputs, so that all we see was made here."""
    find_browser()
    folder, scratch = tmp_path_factory.mktemp("course"), tmp_path_factory.mktemp("lab")
    for name in ("data", "notebooks"):
        shutil.copytree(ROOT / name, folder / name)
    for path in (folder / "notebooks").glob("*.ipynb"):
        forget_outputs(path)
    with running_lab(folder, scratch) as lab:
        yield lab


def forget_outputs(path: Path) -> None:
    made = json.loads(path.read_text(encoding="utf-8"))
    made["metadata"].pop("widgets", None)
    for cell in made["cells"]:
        if cell["cell_type"] == "code":
            cell |= {"outputs": [], "execution_count": None}
    path.write_text(json.dumps(made), encoding="utf-8")


@pytest.fixture(scope="module")
def browser():
    with running_browser(find_browser()) as browser:
        yield browser


@pytest.fixture
def page(browser, lab):
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    page.set_default_timeout(PATIENCE_S * 1000)
    yield page
    page.close()
    lab.stop_kernels()


def stored_pictures(number: str) -> int:
    """Figures in the stored notebook; those of its widgets come on top."""
    (path,) = ROOT.glob(f"notebooks/{number}_*.ipynb")
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return sum("image/png" in output.get("data", {}) for cell in cells for output in cell.get("outputs", []))


def pictures(place) -> list[str]:
    return place.locator(".jp-OutputArea img").evaluate_all("found => found.map(image => image.src)")


def move_every_control(lab: Lab, widget, patience_s: float = 60) -> int:
    """Move each control of one `interact` cell and back: its figure must change. How many there were."""
    shown = pictures(widget)
    assert len(shown) == 1
    time.sleep(1)
    assert pictures(widget) == shown, "the figure changes by itself"
    rows = widget.locator(MOVED)
    assert rows.count() == widget.locator(".widget-interact > .widget-inline-hbox").count()
    for number in range(rows.count()):
        # Back, too: with what one control now shows, another may rightly have nothing to change.
        for direction in ("there", "back"):
            before = pictures(widget)
            move(rows.nth(number), direction)
            what = f"the figure to change with control {number}"
            wait_until(lambda before=before: pictures(widget) not in (before, []), what, patience_s)
            wait_until(lab.idle, "the kernel to be idle again")
    return rows.count()


def move(row, direction: str) -> None:
    """One step of a slider, one choice of a dropdown, the other state of a box."""
    if row.locator("select").count():
        choices = row.locator("select")
        now, count = choices.evaluate("select => [select.selectedIndex, select.options.length]")
        choices.select_option(index=(now + (1 if direction == "there" else -1)) % count)
    elif row.locator("input[type=checkbox]").count():
        row.locator("input[type=checkbox]").click()
    else:
        slide(row, ("ArrowRight", "ArrowLeft") if direction == "there" else ("ArrowLeft", "ArrowRight"))


def slide(row, keys: tuple[str, str]) -> None:
    """One step with the first key; at the end of the slider, where that does nothing, with the second."""
    handle = row.locator(".noUi-handle").first
    before = handle.get_attribute("aria-valuenow")
    for key in keys:
        handle.press(key)
        if handle.get_attribute("aria-valuenow") != before:
            return
    pytest.fail("a slider does not move")


@pytest.mark.parametrize("number", NUMBERS)
def test_notebook_runs_and_every_control_redraws_its_figure(number, lab, page):
    names = [path.name for path in (lab.folder / "notebooks").glob(f"{number}_*.ipynb")]
    assert len(names) == 1, f"one notebook {number} is expected"
    lab.run_all_cells(page, names[0])
    errors = page.locator(ERRORS)
    assert errors.all_text_contents() == []
    assert page.locator(".jp-CodeCell").count() > 30
    assert len(pictures(page)) >= stored_pictures(number)
    widgets = page.locator(".jp-CodeCell", has=page.locator(".widget-interact"))
    assert widgets.count() >= 1
    for place in range(widgets.count()):
        assert move_every_control(lab, widgets.nth(place)) >= 1
    assert errors.all_text_contents() == []


def test_a_control_that_does_nothing_is_found(lab, page):
    cells = (
        WIDGETS,
        "_ = interact(draw, **make(), c=Dropdown(options=[1, 2]))",
        "_ = interact(forgets, **make())",
    )
    small = notebook(*cells) | {"metadata": {"kernelspec": {"name": "python3", "display_name": "Python 3"}}}
    student.write(lab.folder / "notebooks" / "small.ipynb", small)
    lab.run_all_cells(page, "small.ipynb")
    widgets = page.locator(".jp-CodeCell", has=page.locator(".widget-interact"))
    assert widgets.count() == 2
    assert move_every_control(lab, widgets.nth(0)) == 3
    with pytest.raises(pytest.fail.Exception, match="with control 1"):
        move_every_control(lab, widgets.nth(1), patience_s=4)
