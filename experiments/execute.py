"""Runs notebooks from the top and stores their outputs.

    python -m experiments.execute notebooks/02_attention.ipynb             in place
    python -m experiments.execute --to build/notebooks notebooks/*.ipynb   into a folder

Exit status 1 at the first cell that fails; its error is printed.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, CellTimeoutError

CELL_TIMEOUT_S = 300
QUIET = "--log-level=ERROR"  # a kernel warns of TCP without encryption, which stays on this machine


class Client(NotebookClient):
    """nbclient, without its chance to wait for ever.

    A widget makes nbclient send messages while it waits for the cell's reply. Sending can use up the one
    signal that says a reply has come (ZeroMQ's file descriptor tells of changes only), and then nobody looks.
    So once a second, when nbclient asks whether the kernel is alive, we look.
    """

    async def _async_check_alive(self) -> None:
        await super()._async_check_alive()
        for channel in (self.kc.shell_channel, self.kc.iopub_channel):
            channel.socket._schedule_remaining_events()


def main(arguments: list[str] | None = None) -> int:
    """Run each notebook in its own folder, as Jupyter does; the exit status."""
    parser = argparse.ArgumentParser("python -m experiments.execute", description=__doc__.split("\n")[0])
    parser.add_argument("notebooks", nargs="+", type=Path, metavar="NOTEBOOK")
    parser.add_argument("--to", type=Path, metavar="FOLDER", help="write there instead of in place")
    options = parser.parse_args(arguments)
    for path in options.notebooks:
        target = (options.to or path.parent) / path.name
        try:
            run(path, target)
        except (CellExecutionError, CellTimeoutError) as error:
            print(f"{path.name}: {error}", file=sys.stderr)
            return 1
        print(f"wrote {target}")
    return 0


def run(path: Path, target: Path, kernel_arguments: Sequence[str] = ()) -> None:
    """Execute `path` and write it to `target`, whole or with the outputs up to a cell that failed.

    `kernel_arguments` go to the kernel, such as the format of its figures.
    """
    notebook = nbformat.read(path, as_version=4)
    client = Client(
        notebook,
        timeout=CELL_TIMEOUT_S,
        resources={"metadata": {"path": str(path.parent)}},
        coalesce_streams=True,
        record_timing=False,
        extra_arguments=[QUIET, *kernel_arguments],
    )
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        client.execute()
    finally:
        nbformat.write(notebook, target)


if __name__ == "__main__":
    sys.exit(main())
