"""The tables of README.md that were measured on an H200, from data/results/."""

import json

from experiments.machine import ROOT
from minillm import memory
from minillm.presets import PRESETS
from minillm.units import GB, gib, short

RESULTS = ROOT / "data" / "results"
PREFILL = 4096  # tokens of the longest prompt that was timed beside vLLM
RESIDENT = ("Qwen3-1.7B", "Qwen3-8B")
STREAMED, OVER_PREFETCH = "Qwen3-8B, 13 layers", "ours over vLLM's prefetch offloader"  # of checks


def table(rows: list[list[str]]) -> str:
    """Markdown; the second row is what stands under the heads."""
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def _result(name: str) -> dict:
    return json.loads((RESULTS / f"{name}__h200.json").read_text(encoding="utf-8"))


def offload_table() -> str:
    """The budget sweep of Qwen3-8B: measured on an H200, and predicted for the course's card."""
    result = _result("budget_sweep")
    rows = {row["key"]: row for row in result["rows"]}
    head = ["layers on the GPU", "copied a token", "GPU memory", "naive", "prefetch", "limit of the link"]
    lines = [[*head, "RTX 3070, prefetch, *predicted*"], ["---"] * (len(head) + 1)]
    for row in rows.values():
        if row.get("mode") == "prefetch" and row["streamed"]:
            speeds = rows[f"naive/{row['budget']}"], row, {"tokens_per_s": row["limit_tokens_per_s"]}
            card = row["rtx3070_tokens_per_s"]
            lines.append(
                [
                    f"{row['budget']} of {row['resident'] + row['streamed']}",
                    f"{row['streamed_bytes'] / GB:.1f} GB",
                    gib(row["peak_bytes"]),
                    *(f"{each['tokens_per_s']:.2f}" for each in speeds),
                    "too large" if card is None else f"{card:.2f}",
                ]
            )
    return table(lines)


def offload_note() -> str:
    """What the rows of the sweep ran with: the link, and which of them under a cap on memory."""
    rows = [row for row in _result("budget_sweep")["rows"] if row.get("mode") == "prefetch"]
    capped = [row for row in rows if row["cap_gib"]]
    most = max(row["budget"] for row in capped)
    least = min(row["budget"] for row in rows if not row["cap_gib"])
    return (
        f"The link ran at {rows[0]['link_gb_s']:.1f} GB/s. Up to {most} layers ran under a cap of "
        f"{capped[0]['cap_gib']:g} GiB, from {least} on without."
    )


def fewer_table() -> str:
    """Streamed models in fewer bits: measured on an H200, and predicted for the course's card.

    Where all layers fit the card, what it would do with them all is in brackets.
    """
    result = _result("quant")
    whole = {(row["model"], row["quantize"]): row for row in result["rows"] if row.get("mode") == "resident"}
    head = [
        "model",
        "layers on the GPU",
        "weights",
        "copied a token",
        "GPU memory",
        "prefetch",
        "limit of the link",
    ]
    lines = [[*head, "RTX 3070, prefetch, *predicted*"], ["---"] * (len(head) + 1)]
    for row in result["rows"]:
        if row.get("mode") == "prefetch":
            measured, limit, card = (
                f"{row[name]:.2f}" for name in ("tokens_per_s", "limit_tokens_per_s", "rtx3070_tokens_per_s")
            )
            where = f"{row['budget']} of {row['resident'] + row['streamed']}"
            copied, taken = f"{row['streamed_bytes'] / GB:.1f} GB", gib(row["peak_bytes"])
            weights = row["quantize"] or "16 bits"
            fits = whole.get((row["model"], row["quantize"]), {}).get("rtx3070_tokens_per_s")
            card += f" (fits whole: {short(fits)})" if fits else ""
            lines.append([row["model"], where, weights, copied, taken, measured, limit, card])
    return table(lines)


def vllm_table() -> str:
    """Ours beside vLLM on the same prompts, one reader."""
    values = _beside_vllm()
    head = ["model", "layers that stay on the GPU", "ours", "vLLM", "decoding, ours over vLLM", "GPU memory"]
    lines = [[*head, f"time to the first token of a prompt of {PREFILL:,}"], ["---"] * (len(head) + 1)]
    for model in RESIDENT:
        speeds = (_starting(values, f"{model} resident, {engine}: tok/s") for engine in ("ours", "vllm"))
        names = ("decode tok/s", "peak GPU memory", f"prefill latency of {PREFILL} tokens")
        decode, peak, first = (f"{values[f'{model} resident: {name}, ours over vllm']:.2f}" for name in names)
        less = values[f"{model} resident: peak GPU memory less its counts for many sequences, ours over vllm"]
        lines.append([model, "all", *speeds, decode, f"{peak} ({less:.2f})", first])
    lines.append(_streamed_beside_vllm(values))
    return table(lines)


def vllm_note() -> str:
    """What is not the same on both sides of that table, and how its ratios are made."""
    values = _beside_vllm()
    counts = {row["counts_bytes"] for row in _result("vllm")["rows"] if row.get("counts_bytes")}
    locked = values[f"{STREAMED}: locked host memory, {OVER_PREFETCH}"]
    own = [
        f"{values[f'{model} resident: decode tok/s, ours over vllm in its own process']:.2f}"
        for model in RESIDENT
    ]
    embedding = memory.plan(PRESETS["Qwen3-8B"], 2, 1).embedding
    return (
        "The ratio of decoding is the median of the prompts’ ratios, not the ratio of the two medians beside "
        f"it. In brackets: without the {gib(max(counts))} of counters that vLLM keeps for many readers. "
        "vLLM’s default is an engine in a process of its own, where its memory cannot be seen: beside that "
        f"one, decoding has the ratios {' and '.join(own)}. In the last row our embedding "
        f"({gib(embedding)}) lies in main memory and vLLM’s on the GPU, and vLLM has a second slot; ours "
        f"locks {locked:.2f} times as much main memory."
    )


def _beside_vllm() -> dict[str, float]:
    return {check["name"]: check["value"] for check in _result("vllm")["checks"]}


def _streamed_beside_vllm(values: dict[str, float]) -> list[str]:
    """Where 12 of 36 layers stay in both: ours streams through one slot, vLLM's prefetch offloader two."""
    ours = _starting(values, "Qwen3-8B, at most 13 layers on the device, ours: tok/s")
    theirs = _starting(values, "Qwen3-8B, vLLM's prefetch offloader: tok/s")
    names = ("decode tok/s", "peak GPU memory")
    ratios = (f"{values[f'{STREAMED}: {name}, {OVER_PREFETCH}']:.2f}" for name in names)
    return ["Qwen3-8B", "12 of 36", ours, theirs, *ratios, "–"]


def _starting(values: dict[str, float], name: str) -> str:
    """The figure whose name begins so; behind it stands of how many prompts it is the median."""
    (found,) = [value for key, value in values.items() if key.startswith(name)]
    return f"{found:.2f}" if found < 10 else short(found)
