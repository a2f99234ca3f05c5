"""The tables of README.md that were measured on an H200, from data/results/."""

import json

from experiments.machine import ROOT
from minillm.units import GB, gib, short

RESULTS = ROOT / "data" / "results"
PREFILL = 4096  # tokens of the longest prompt that was timed beside vLLM


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


def fewer_table() -> str:
    """Streamed models in fewer bits: measured on an H200, and predicted for the course's card."""
    result = _result("quant")
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
            lines.append([row["model"], where, weights, copied, taken, measured, limit, card])
    return table(lines)


def vllm_table() -> str:
    """Ours beside vLLM on the same prompts, one reader."""
    values = {check["name"]: check["value"] for check in _result("vllm")["checks"]}
    head = ["model", "layers that stay on the GPU", "ours", "vLLM", "decoding, ours over vLLM", "GPU memory"]
    lines = [[*head, f"time to the first token of a prompt of {PREFILL:,}"], ["---"] * (len(head) + 1)]
    for model in ("Qwen3-1.7B", "Qwen3-8B"):
        speeds = (_starting(values, f"{model} resident, {engine}: tok/s") for engine in ("ours", "vllm"))
        names = ("decode tok/s", "peak GPU memory", f"prefill latency of {PREFILL} tokens")
        ratios = (f"{values[f'{model} resident: {name}, ours over vllm']:.2f}" for name in names)
        lines.append([model, "all", *speeds, *ratios])
    lines.append(_streamed_beside_vllm(values))
    return table(lines)


def _streamed_beside_vllm(values: dict[str, float]) -> list[str]:
    """Where 12 of 36 layers stay in both: ours streams through one slot, vLLM's prefetch offloader two."""
    ours = _starting(values, "Qwen3-8B, at most 13 layers on the device, ours: tok/s")
    theirs = _starting(values, "Qwen3-8B, vLLM's prefetch offloader: tok/s")
    ratio = "Qwen3-8B, 13 layers: %s, ours over vLLM's prefetch offloader"
    ratios = (f"{values[ratio % name]:.2f}" for name in ("decode tok/s", "peak GPU memory"))
    return ["Qwen3-8B", "12 of 36", ours, theirs, *ratios, "–"]


def _starting(values: dict[str, float], name: str) -> str:
    """The figure whose name begins so; behind it stands of how many prompts it is the median."""
    (found,) = [value for key, value in values.items() if key.startswith(name)]
    return f"{found:.2f}" if found < 10 else short(found)
