"""A JupyterLab of our own and a page in headless Chromium, for the browser test."""

import json
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
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


def wait_until(condition: Callable[[], bool], what: str, patience_s: float = PATIENCE_S) -> None:
    """Fail the test when `condition` does not come true."""
    end = time.monotonic() + patience_s
    while not condition():
        if time.monotonic() > end:
            pytest.fail(f"waited {patience_s:g} s for {what}")
        time.sleep(0.1)


def find_browser() -> str:
    """Path of a Chromium; without one the test is skipped."""
    found = [path for path in map(shutil.which, BROWSERS) if path]
    if not found:
        pytest.skip(f"no browser: none of {', '.join(BROWSERS)} is installed")
    return found[0]


class Lab:
    """A running JupyterLab at `address`, serving `folder`."""

    def __init__(self, address: str, folder: Path):
        self.address, self.folder = address, folder

    def kernels(self) -> list[dict]:
        """What the server lists; while a kernel starts or stops it may fail to, for a moment."""
        for _ in range(20):
            try:
                return self._kernels()
            except urllib.error.HTTPError:
                time.sleep(0.5)
        return self._kernels()

    def _kernels(self) -> list[dict]:
        with urllib.request.urlopen(f"{self.address}/api/kernels?token={TOKEN}", timeout=30) as reply:
            return json.load(reply)

    def answers(self) -> bool:
        try:
            self.kernels()
        except OSError:
            return False
        return True

    def idle(self) -> bool:
        running = self.kernels()
        return bool(running) and all(kernel["execution_state"] == "idle" for kernel in running)

    def stop_kernels(self) -> None:
        """Give their memory back; the next notebook starts alone."""
        for kernel in self.kernels():
            url = f"{self.address}/api/kernels/{kernel['id']}?token={TOKEN}"
            urllib.request.urlopen(urllib.request.Request(url, method="DELETE"), timeout=30).close()

    def run_all_cells(self, page, name: str) -> None:
        """Open notebooks/NAME and do what a learner does: menu Run, Run All Cells; back when all have run."""
        page.goto(f"{self.address}/lab/tree/notebooks/{name}?token={TOKEN}&reset")
        page.wait_for_selector(".jp-Notebook .jp-CodeCell")
        wait_until(self.idle, "the kernel to start")
        page.get_by_role("menuitem", name="Run", exact=True).click()
        page.get_by_role("menuitem", name="Run All Cells", exact=True).click()
        prompts = page.locator(".jp-CodeCell .jp-InputPrompt")
        done = "found => found.length && found.every(prompt => /\\d/.test(prompt.textContent))"
        wait_until(lambda: prompts.evaluate_all(done), "every cell to have run")
        wait_until(self.idle, "the kernel to be idle")


@contextmanager
def running_lab(folder: Path, scratch: Path) -> Iterator[Lab]:
    """A JupyterLab for `folder` on a free port of 127.0.0.1; settings and log lie in `scratch`."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root", "--ip=127.0.0.1"]
    command += [f"--port={port}", f"--IdentityProvider.token={TOKEN}", f"--ServerApp.root_dir={folder}"]
    with open(scratch / "lab.log", "w") as log:
        server = subprocess.Popen(command, env=own_settings(scratch), stdout=log, stderr=log)
    lab = Lab(f"http://127.0.0.1:{port}", folder)
    try:
        wait_until(lambda: server.poll() is not None or lab.answers(), "JupyterLab to answer")
        assert server.poll() is None, (scratch / "lab.log").read_text()
        yield lab
    finally:
        server.terminate()
        server.wait(timeout=30)


def own_settings(scratch: Path) -> dict[str, str]:
    """An environment in which JupyterLab neither reads nor writes the user's settings."""
    for name, values in SETTINGS.items():
        file = scratch / "settings" / "@jupyterlab" / f"{name}.jupyterlab-settings"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(values))
    return os.environ | {
        "JUPYTERLAB_SETTINGS_DIR": str(scratch / "settings"),
        "JUPYTERLAB_WORKSPACES_DIR": str(scratch / "workspaces"),
        "JUPYTER_CONFIG_DIR": str(scratch / "config"),
        "JUPYTER_RUNTIME_DIR": str(scratch / "runtime"),
        "IPYTHONDIR": str(scratch / "ipython"),
        "PYTHONPATH": str(ROOT),
    }


@contextmanager
def running_browser(path: str) -> Iterator:
    """Headless Chromium under playwright."""
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, headless=True, args=CHROMIUM_OPTIONS)
        yield browser
        browser.close()
