"""Tables of the report: goals that were missed, and where another program is ahead of ours."""

import re
from collections.abc import Sequence

from experiments.report_results import NOT_YET, Archive, Stored
from experiments.report_table import Table

Causes = Sequence[tuple[str, str]]  # a pattern of a check's name, and what is known of it
HEAD = ("result", "what was to be reached", "value", "goal", "what is known of the cause")


def missed(archive: Archive, causes: Causes = ()) -> Table:
    """Every goal that was not met."""
    rows = [
        (_where(stored), check["name"], *_goal(check), _cause(check["name"], causes))
        for stored in archive.all()
        for check in stored.checks
        if check["met"] is False
    ]
    return Table("Goals that were missed", HEAD, tuple(rows) or (("none",),))


def behind(archive: Archive, causes: Causes = ()) -> Table:
    """Every ratio to another program that is on the wrong side of 1, though no goal was missed by it."""
    rows = [
        (_where(stored), check["name"], f"{check['value']:.3f}", _cause(check["name"], causes))
        for stored in archive.all()
        for check in stored.checks
        if _is_behind(check)
    ]
    head = ("result", "what was compared", "ours over theirs", "what is known of the cause")
    return Table("Where another program is ahead", head, tuple(rows) or (("nowhere",),))


def _is_behind(check: dict) -> bool:
    if check["value"] is None or check["met"] is False or " ours over " not in check["name"]:
        return False
    return check["value"] < 1 if check["better"] == "higher" else check["value"] > 1


def _where(stored: Stored) -> str:
    return f"{stored.experiment}, {stored.place}"


def _goal(check: dict) -> tuple[str, str]:
    value = NOT_YET if check["value"] is None else f"{check['value']:.4g}"
    return value, f"{'≥' if check['better'] == 'higher' else '≤'} {check['goal']:.4g}"


def _cause(name: str, causes: Causes) -> str:
    return next((text for pattern, text in causes if re.search(pattern, name)), "not found yet")
