"""Checks of single values, shared by configurations and settings; each error is one line with the limits."""

import math
import operator
from numbers import Real
from typing import Any

from minillm.errors import InputError

SHOWN = 80  # characters of a value that an error repeats


def whole(name: str, value: Any, low: int, high: float = math.inf) -> int:
    """`value` as an int, also from numpy's integers; InputError unless low ≤ value ≤ high."""
    number = as_whole(value)
    if number is None or not low <= number <= high:
        limit = "" if high == math.inf else f" and at most {high}"
        raise InputError(f"{name} is {shown(value)}: it must be a whole number of at least {low}{limit}")
    return number


def as_whole(value: Any) -> int | None:
    """`value` as an int if it is a whole number by its type; None for others and for true and false."""
    if isinstance(value, bool):
        return None
    try:
        return operator.index(value)
    except TypeError:
        return None


def number(name: str, value: Any, low: float, high: float = math.inf, *, above: bool = False) -> float:
    """`value` as a float; InputError unless it is finite and low ≤ value ≤ high (`above`: low < value)."""
    found = _as_float(value)
    if found is None or not (low < found if above else low <= found) or found > high:
        bounds = f"above {low:g}" if above else f"at least {low:g}"
        limit = "" if high == math.inf else f" and at most {high:g}"
        raise InputError(f"{name} is {shown(value)}: it must be a finite number {bounds}{limit}")
    return found


def _as_float(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, Real):
        return None
    try:
        found = float(value)
    except OverflowError:
        return None
    return found if math.isfinite(found) else None


def shown(value: Any) -> str:
    """The value as an error repeats it: cut where it is long."""
    try:
        text = repr(value)
    except ValueError:  # Python writes no whole number of more than 4,300 digits
        return "a number of thousands of digits"
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}…"


def some(names: list[str]) -> str:
    """The first names of a list and how many more there are, with the verb: "a, b, c and 2 more are"."""
    more = f" and {len(names) - 3} more are" if len(names) > 3 else (" are" if len(names) > 1 else " is")
    return ", ".join(names[:3]) + more
