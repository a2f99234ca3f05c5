"""How the notebooks answer an exercise: right, or a hint. A wrong answer never stops the notebook."""

from collections.abc import Callable
from math import isclose
from typing import Any

SKIPPED = "Not answered yet: replace the line that raises NotImplementedError."


def check(name: str, answer: Callable[[], Any], expected: Any, hints: dict[str, Any] | None = None) -> bool:
    """Call `answer` and print whether it gives `expected`; numbers may differ by one in a thousand.

    `hints` maps a hint to the value that the mistake it explains would give.
    """
    verdict = _verdict(answer, expected, hints or {})
    print(f"{name}: {verdict or 'right.'}")
    return verdict is None


def _verdict(answer: Callable[[], Any], expected: Any, hints: dict[str, Any]) -> str | None:
    try:
        value = answer()
    except NotImplementedError:
        return SKIPPED
    except Exception as error:
        return f"not yet: your code raised {type(error).__name__}: {error}"
    if _same(value, expected):
        return None
    for hint, wrong in hints.items():
        if _same(value, wrong):
            return f"not yet, it gave {value!r}. {hint}"
    return f"not yet: it gave {value!r}, a {type(value).__name__}."


def _same(value: Any, other: Any) -> bool:
    if isinstance(value, int | float) and isinstance(other, int | float):
        return isclose(value, other, rel_tol=1e-3)
    return type(value) is type(other) and value == other
