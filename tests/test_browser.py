"""Notebook 00 as a learner meets it: JupyterLab in headless Chromium, run from the top, the widget moved."""

import json
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
NOTEBOOK = "00_start_here.ipynb"
TOKEN = "browser-test"
PATIENCE_S = 300  # for a whole run on two busy cores; alone it takes a quarter of a minute
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")
CHROMIUM_OPTIONS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
# Cells out of view would otherwise not be in the page, and a news popup would cover it.
SETTINGS = {
    "notebook-extension/tracker": {"windowingMode": "none"},
    "apputils-extension/notification": {"fetchNews": "false", "checkForUpdates": False},
}

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def chromium() -> str:
    found = [path for path in map(shutil.which, BROWSERS) if path]
    if not found:
        pytest.skip(f"no browser: none of {', '.join(BROWSERS)} is installed")
    return found[0]


@pytest.fixture
def copy(tmp_path) -> Path:
    """The course in a temporary folder, its notebook without outputs, so that all we see was made here."""
    shutil.copytree(ROOT / "data", tmp_path / "course" / "data")
    shutil.copytree(ROOT / "notebooks", tmp_path / "course" / "notebooks")
    path = tmp_path / "course" / "notebooks" / NOTEBOOK
    notebook = json.loads(path.read_text(encoding="utf-8"))
    notebook["metadata"].pop("widgets", None)
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            cell |= {"outputs": [], "execution_count": None}
    path.write_text(json.dumps(notebook), encoding="utf-8")
    return tmp_path / "course"


@pytest.fixture
def lab(copy, tmp_path):
    """Address of a JupyterLab of our own on a free port of 127.0.0.1, with its own settings."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    for name, values in SETTINGS.items():
        file = tmp_path / "settings" / "@jupyterlab" / f"{name}.jupyterlab-settings"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(values))
    environment = os.environ | {
        "JUPYTERLAB_SETTINGS_DIR": str(tmp_path / "settings"),
        "JUPYTERLAB_WORKSPACES_DIR": str(tmp_path / "workspaces"),
        "JUPYTER_CONFIG_DIR": str(tmp_path / "config"),
        "JUPYTER_RUNTIME_DIR": str(tmp_path / "runtime"),
        "IPYTHONDIR": str(tmp_path / "ipython"),
        "PYTHONPATH": str(ROOT),
    }
    command = [sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root", "--ip=127.0.0.1"]
    command += [f"--port={port}", f"--IdentityProvider.token={TOKEN}", f"--ServerApp.root_dir={copy}"]
    with open(tmp_path / "lab.log", "w") as log:
        server = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
    try:
        wait_until(lambda: server.poll() is not None or answers(port), "JupyterLab to answer")
        assert server.poll() is None, (tmp_path / "lab.log").read_text()
        yield f"http://127.0.0.1:{port}"
    finally:
        server.terminate()
        server.wait(timeout=30)


def wait_until(condition, what: str) -> None:
    end = time.monotonic() + PATIENCE_S
    while not condition():
        if time.monotonic() > end:
            pytest.fail(f"waited {PATIENCE_S} s for {what}")
        time.sleep(0.3)


def answers(port: int) -> bool:
    try:
        kernels(f"http://127.0.0.1:{port}")
    except OSError:
        return False
    return True


def kernels(address: str) -> list[dict]:
    with urllib.request.urlopen(f"{address}/api/kernels?token={TOKEN}", timeout=10) as reply:
        return json.load(reply)


def idle(address: str) -> bool:
    running = kernels(address)
    return bool(running) and all(kernel["execution_state"] == "idle" for kernel in running)


@pytest.fixture
def page(chromium):
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, headless=True, args=CHROMIUM_OPTIONS)
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        page.set_default_timeout(PATIENCE_S * 1000)
        yield page
        browser.close()


def run_all_cells(page, address: str) -> None:
    page.goto(f"{address}/lab/tree/notebooks/{NOTEBOOK}?token={TOKEN}&reset")
    page.wait_for_selector(".jp-Notebook .jp-CodeCell")
    wait_until(lambda: idle(address), "the kernel to start")
    page.get_by_role("menuitem", name="Run", exact=True).click()
    page.get_by_role("menuitem", name="Run All Cells", exact=True).click()
    prompts = page.locator(".jp-CodeCell .jp-InputPrompt")
    done = "found => found.length && found.every(prompt => /\\d/.test(prompt.textContent))"
    wait_until(lambda: prompts.evaluate_all(done), "every cell to have run")
    wait_until(lambda: idle(address), "the kernel to be idle")


def test_notebook_runs_and_its_widget_redraws_the_figure(lab, page):
    run_all_cells(page, lab)
    assert page.locator(".jp-CodeCell").count() > 30
    errors = page.locator('[data-mime-type="application/vnd.jupyter.error"]')
    assert errors.all_text_contents() == []
    assert page.locator(".jp-OutputArea img").count() >= 7

    widget = page.locator(".jp-CodeCell", has=page.locator(".widget-slider"))
    picture = widget.locator(".jp-OutputArea img")
    before, reading = picture.get_attribute("src"), widget.locator(".widget-readout").first.text_content()
    time.sleep(1)
    assert picture.get_attribute("src") == before  # it does not change by itself
    widget.locator(".widget-slider .noUi-handle").press("ArrowRight")
    wait_until(
        lambda: widget.locator(".widget-readout").first.text_content() != reading, "the slider to move"
    )
    wait_until(lambda: picture.get_attribute("src") != before, "the figure to change")
    wait_until(lambda: idle(lab), "the kernel to be idle again")
    assert errors.all_text_contents() == []
