"""`python -m minillm`: parse, dispatch to the command's file, turn the outcome into an exit status."""

import sys

from minillm.cli.interrupts import Interrupts


def main(argv: list[str] | None = None, own_streams: bool = False) -> int:
    """Run a command line (default: that of the process) and return its exit status.

    0; 1 the run failed; 2 wrong usage or bad input; 130 Ctrl-C. `own_streams`: the process is this command.
    """
    argv = sys.argv[1:] if argv is None else argv
    with Interrupts() as interrupts:
        from minillm.cli.terminal import guarded, open_streams  # inside: a Ctrl-C that comes now is told, too

        if own_streams:
            open_streams()

        def work() -> int:
            try:
                interrupts.open()
                return _run(argv, interrupts)
            finally:
                interrupts.shut()

        return guarded(work, debug="--debug" in argv)


def _run(argv: list[str], interrupts: Interrupts) -> int:
    from importlib import import_module

    from minillm.cli.parser import make_parser

    args = make_parser().parse_args(argv)
    command = import_module(f"minillm.cli.{args.command}")
    interrupts.check()
    return command.run(args)


def run() -> None:
    """Entry point of the installed `minillm` command."""
    sys.exit(main(own_streams=True))


if __name__ == "__main__":
    run()
