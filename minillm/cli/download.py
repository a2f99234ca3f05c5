"""`download`: fetch a model from the hub and print its folder."""

import argparse

from minillm import hub
from minillm.cli.terminal import write


def run(args: argparse.Namespace) -> int:
    """Fetch what is missing, check what is here; returns the exit status."""
    try:
        folder = hub.download(args.hub_id, recheck=True)
    except KeyboardInterrupt:
        raise KeyboardInterrupt("what came is kept, run the same again to go on from there") from None
    write(f"{folder}\n")
    return 0
