"""Tables of the report: goals that were missed, and where another program is ahead of ours."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from experiments.report_results import NOT_YET, Archive, Stored, middle, most, over
from experiments.report_rows import NAMES, fastest, groups, is_resident, most_memory, ran
from experiments.report_table import Table
from experiments.vllm_checks import ratio

Causes = Sequence[tuple[str, str]]  # a pattern of what was compared, and what is known of it
HEAD = ("result", "what was to be reached", "value", "goal", "what is known of the cause")
BEHIND_HEAD = (
    *("result", "model", "what was compared", "ahead of ours", "ours over theirs"),
    "what is known of the cause",
)
START, PEAK, FIRST, DECODE = "seconds until ready", "peak GPU memory", "TTFT", "decode tok/s"


def missed(archive: Archive, causes: Causes = ()) -> Table | str:
    """Every goal that was not met, or a sentence that there is none."""
    judged = [(stored, c) for stored in archive.all() for c in stored.checks if c["met"] is not None]
    rows = [
        (_where(stored), check["name"], *_goal(check), _cause(check["name"], causes))
        for stored, check in judged
        if not check["met"]
    ]
    if not rows:
        return f"**Goals that were missed**: none of the {len(judged)} that have been measured."
    return Table("Goals that were missed", HEAD, tuple(rows))


# ---- where another program is ahead ----


@dataclass(frozen=True)
class Compared:
    """Ours over theirs of one quantity in one result; `model` with its setting, such as "8B, 13 layers"."""

    result: str
    model: str
    what: str
    rival: str
    value: float | None
    better: str = "lower"

    def is_behind(self) -> bool:
        if self.value is None:
            return False
        return self.value < 1 if self.better == "higher" else self.value > 1

    def __str__(self) -> str:
        return f"{self.model}: {self.what}, ours over {self.rival}"


def behind(archive: Archive, causes: Causes = ()) -> Table:
    """Every ratio to another program that is on the wrong side of 1, though no goal was missed by it.

    One row for what is the same: of several results with their range, of settings and rivals with one value.
    """
    found: dict[tuple[str, ...], list[Compared]] = {}
    for each in compared(archive):
        if each.is_behind():
            found.setdefault((each.model, each.what, each.rival, _cause(str(each), causes)), []).append(each)
    joined: dict[tuple[str, ...], list[tuple[str, str, str]]] = {}
    for (model, what, rival, cause), same in found.items():
        results = " and ".join(dict.fromkeys(each.result for each in same))
        values = dict.fromkeys(_ratio(each.value) for each in sorted(same, key=lambda each: each.value))
        text = " to ".join([*values][:: max(1, len(values) - 1)])
        joined.setdefault((model.split(",")[0], what, text, cause), []).append((results, model, rival))
    rows = []
    for (model, what, text, cause), names in joined.items():
        results, models, rivals = (" and ".join(dict.fromkeys(column)) for column in zip(*names, strict=True))
        rows.append((results, models.replace(f" and {model}, ", " and "), what, rivals, text, cause))
    return Table("Where another program is ahead", BEHIND_HEAD, tuple(rows) or (("nowhere",),))


def compared(archive: Archive) -> Iterator[Compared]:
    """All ratios to other programs that a result holds, or that its rows give."""
    for stored in archive.all():
        for check in stored.checks:
            named = re.fullmatch(r"(.+?)(?: resident)?: (.+), ours over (.+)", check["name"])
            if named and check["met"] is not False:
                model, what, rival = named.groups()
                rival = rival.replace("vllm", NAMES["vllm"])
                yield Compared(_where(stored), model, what, rival, check["value"], check["better"])
    for experiment in ("vllm", "baseline", "peer_settings"):
        yield from _resident(archive.get(experiment))
        yield from _starts(archive.get(experiment))
    yield from _longest(archive.get("vllm"))
    yield from _offloaded(archive.get("offload_compare"))
    yield from _loading(archive.get("loading", "cpu2"))


def _resident(stored: Stored) -> Iterator[Compared]:
    """What checks do not tell of models that fit: TTFT of answers, and memory beside transformers."""
    for model in dict.fromkeys(row["model"] for row in stored.rows() if "model" in row):
        found = {name: rows for name, rows in groups(stored, model).items() if is_resident(rows[0])}
        mine = fastest(found)
        for name in found if mine else ():
            if not name.startswith("minillm"):
                first = ratio(ran(found[mine]), ran(found[name]), "ttft_s")
                yield Compared(_where(stored), model, FIRST, name, first)
            if name.startswith(NAMES["transformers"]):
                memory = over(most_memory(stored, model, mine), most_memory(stored, model, name))
                yield Compared(_where(stored), model, PEAK, name, memory)


def _starts(stored: Stored) -> Iterator[Compared]:
    ready = {row["key"]: row["load_s"] + row.get("warm_s", 0.0) for row in stored.rows() if row.get("load_s")}
    for key, theirs in ready.items():
        model, engine, mode, *more = key.split("/")
        ours = ready.get(
            f"{model}/minillm/{'resident' if mode.startswith('resident') else 'prefetch'}/loaded"
        )
        if engine != "minillm" and more == ["loaded"]:
            yield Compared(_where(stored), model, START, NAMES.get(engine, engine), over(ours, theirs))


def _longest(stored: Stored) -> Iterator[Compared]:
    """First tokens of the longest prompt where layers stream; the rows are those about memory."""
    peaks = [row for row in stored.rows() if row["key"].endswith("/peak") and not is_resident(row)]
    for ours in (row for row in peaks if row["engine"] == "minillm"):
        for theirs in (row for row in peaks if row["engine"] == "vllm"):
            rival = f"vLLM's {theirs['mode']} offloader"
            what = f"{FIRST} of {ours['prompt_tokens']:,} tokens"
            value = over(ours["ttft_s"], theirs["ttft_s"])
            yield Compared(_where(stored), f"{ours['model']}, {ours['budget']} layers", what, rival, value)


def _offloaded(stored: Stored) -> Iterator[Compared]:
    ours, theirs = (
        [r for r in stored.rows(f"{mode}/") if "ttft_s" in r] for mode in ("prefetch", "accelerate")
    )
    made = [(FIRST, "lower", ratio(ours, theirs, "ttft_s")), (DECODE, "higher", ratio(ours, theirs))]
    made.append((PEAK, "lower", over(most(ours, "peak_bytes"), most(theirs, "peak_bytes"))))
    for what, better, value in made:
        yield Compared(_where(stored), "Qwen3-8B, offloaded", what, "accelerate", value, better)


def _loading(stored: Stored) -> Iterator[Compared]:
    for model in dict.fromkeys(row["key"].split("/")[0] for row in stored.rows()):
        ours, theirs = (stored.rows(f"{model}/{way}/") for way in ("minillm", "transformers"))
        quickest = (min((r["seconds"] for r in rows), default=None) for rows in (ours, theirs))
        yield Compared(_where(stored), model, "loading: seconds", "transformers", over(*quickest))
        memory = over(middle(ours, "peak_bytes"), middle(theirs, "peak_bytes"))
        yield Compared(_where(stored), model, "loading: peak memory", "transformers", memory)


# ---- text ----


def _ratio(value: float) -> str:
    return f"{value:.3f}" if value < 10 else f"{value:,.0f}"


def _where(stored: Stored) -> str:
    return f"{stored.experiment}, {stored.place}"


def _goal(check: dict) -> tuple[str, str]:
    value = NOT_YET if check["value"] is None else f"{check['value']:.4g}"
    return value, f"{'≥' if check['better'] == 'higher' else '≤'} {check['goal']:.4g}"


def _cause(name: str, causes: Causes) -> str:
    return next((text for pattern, text in causes if re.search(pattern, name)), "not found yet")
