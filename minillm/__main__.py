"""`python -m minillm`: parse, dispatch to the command's file, turn the outcome into an exit status."""

import sys
from importlib import import_module

from minillm.cli.parser import make_parser
from minillm.cli.terminal import guarded, open_streams


def main(argv: list[str] | None = None) -> int:
    """Run a command line (default: that of the process) and return its exit status.

    0; 1 the run failed; 2 wrong usage or bad input; 130 Ctrl-C.
    """
    argv = sys.argv[1:] if argv is None else argv

    def work() -> int:
        args = make_parser().parse_args(argv)
        return import_module(f"minillm.cli.{args.command}").run(args)

    return guarded(work, debug="--debug" in argv)


def run() -> None:
    """Entry point of the installed `minillm` command."""
    open_streams()
    sys.exit(main())


if __name__ == "__main__":
    run()
