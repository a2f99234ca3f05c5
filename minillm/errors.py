"""The two kinds of error that minillm raises on purpose.

Each message is one line that names the value, the limit and the remedy. The command line prints the
line and leaves with `exit_status`; everything else that escapes is a bug, and `--debug` shows where.
"""


class MiniLLMError(Exception):
    """Base of both kinds; catch this to catch what minillm raises on purpose."""

    exit_status = 1


class InputError(MiniLLMError, ValueError):
    """What was asked cannot be done: a bad option, prompt, configuration or checkpoint."""

    exit_status = 2


class RunError(MiniLLMError, RuntimeError):
    """What was asked is valid but failed here: no memory, no network, a transfer cut short."""

    exit_status = 1
