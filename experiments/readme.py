"""Writes the numbers and the figure of README.md: predictions from published bandwidth, course map, models.

    python -m experiments.readme

Each block stands between two comment lines; a test fails when a block is not what this module would write.
"""

import json
import re

from experiments.machine import ROOT
from minillm.estimate import estimate
from minillm.hardware import PUBLISHED
from minillm.model_source import SHIPPED
from minillm.plot import short
from minillm.presets import PRESETS
from minillm.units import GB, gib
from training.card import experts, used_parameters
from training.skills import SKILLS

README = ROOT / "README.md"
RESULTS = ROOT / "data" / "results"
FIGURE = ROOT / "data" / "figures" / "predicted_8b.png"
MACHINES = [PUBLISHED[name] for name in ("rtx2080ti", "rtx3070", "rtx4090", "laptop")]  # of learners
MODELS = ("Qwen3-1.7B", "Qwen3-4B", "Qwen3-8B", "Qwen3-14B")
NOTES = {"GPU": "", "GPU + link": " ¹", "CPU": " ²"}


def predicted_table() -> str:
    """Tokens a second that bandwidth allows: a row for each machine, a column for each model at 16 bits."""
    head = ["machine", "memory", "link", *MODELS, "Qwen3-8B in 4 bits ³"]
    rows = [head, ["---"] * len(head)]
    for card in MACHINES:
        rate = card.gpu_gb_s or card.host_gb_s
        link = f"{card.link_gb_s:g} GB/s" if card.link_gb_s else "–"
        speeds = [_cell(model, card, 16) for model in MODELS] + [_cell("Qwen3-8B", card, 4)]
        rows.append([card.name, f"{rate:,g} GB/s", link, *speeds])
    return _table(rows)


def _table(rows: list[list[str]]) -> str:
    """Markdown; the second row is what stands under the heads."""
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def _cell(model: str, card, bits: int) -> str:
    answer = estimate(PRESETS[model], card, bits)
    if answer.tokens_per_s is None:
        return "–"
    return short(answer.tokens_per_s) + (NOTES[answer.placement] if card.link_gb_s else "")


def course_table() -> str:
    """The notebooks of data/course.json; those that exist are links."""
    rows = ["| | question | you build |", "| --- | --- | --- |"]
    for row in json.loads((ROOT / "data" / "course.json").read_text(encoding="utf-8")):
        found = sorted(ROOT.glob(f"notebooks/{row['number']}_*.ipynb"))
        number = f"[{row['number']}](notebooks/{found[0].name})" if found else row["number"]
        rows.append(f"| {number} | {row['question']} | {row['build']} |")
    return "\n".join(rows)


def shipped_table() -> str:
    """The models in data/: their shape, and the share of held-out prompts whose whole answer is right."""
    head = ["model", "layers", "experts a layer", "parameters", "a token uses", "file", *SKILLS]
    rows = [head, ["---"] * len(head), *(shipped_row(name) for name in SHIPPED)]
    return _table(rows)


def shipped_row(name: str) -> list[str]:
    """A model's cells, from the files that its training and its evaluation left."""
    folder = ROOT / "data" / name
    config, facts, result = (
        json.loads((folder / f"{file}.json").read_text(encoding="utf-8"))
        for file in ("config", "training", "evaluation")
    )
    count, used = facts["parameters"], used_parameters(config, facts["parameters"])
    size = (folder / "model.safetensors").stat().st_size
    shares = [f"{100 * result['skills'][skill]['accuracy']:.1f} %" for skill in SKILLS]
    several = f"{experts(config)}, {config['num_experts_per_tok']} a token" if experts(config) else "–"
    shape = [str(config["num_hidden_layers"]), several, f"{count / 1e6:.1f} M", f"{used / 1e6:.1f} M"]
    return [f"[`{name}`](data/{name}/README.md)", *shape, f"{size / 1e6:.1f} MB", *shares]


def offload_table() -> str:
    """The budget sweep of Qwen3-8B: measured on an H200, and predicted for the course's card."""
    result = json.loads((RESULTS / "budget_sweep__h200.json").read_text(encoding="utf-8"))
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
    return _table(lines)


def fewer_table() -> str:
    """Streamed models in fewer bits: measured on an H200, and predicted for the course's card."""
    result = json.loads((RESULTS / "quant__h200.json").read_text(encoding="utf-8"))
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
    return _table(lines)


BLOCKS = {
    "predicted": predicted_table,
    "offload": offload_table,
    "fewer": fewer_table,
    "course": course_table,
    "shipped": shipped_table,
}


def with_blocks(text: str) -> str:
    """`text` with every block rewritten; ValueError when a marker is missing."""
    for name, write in BLOCKS.items():
        pattern = re.compile(rf"(<!-- {name}: begin -->\n).*?(<!-- {name}: end -->)", re.DOTALL)
        block = write() + "\n"
        text, count = pattern.subn(lambda found, block=block: found[1] + block + found[2], text)
        if count != 1:
            raise ValueError(f"README.md has {count} blocks named {name!r}: it must have one")
    return text


def figure_values() -> dict[str, list[float]]:
    """Qwen3-8B on each machine: tokens a second at 16 and at 4 bits."""
    speeds = {}
    for card in MACHINES:
        answers = [estimate(PRESETS["Qwen3-8B"], card, bits).tokens_per_s for bits in (16, 4)]
        speeds[card.name] = [round(speed, 2) for speed in answers]
    return speeds


def draw() -> None:
    """The figure of the first screen; its numbers are stored in the file, for the test."""
    from matplotlib import pyplot as plt

    from minillm import plot

    plot.use()
    values = figure_values()
    figure, axes = plt.subplots(figsize=(8, 2.9))
    left, right = zip(*values.values(), strict=True)
    plot.pairs(axes, list(values), left, right, kinds=("copy", "compute"))
    plot.limit(axes, 7, "you read this fast")
    plot.decades(axes, 1, 1000)
    axes.set_xlabel("tokens a second that bandwidth allows (predicted)")
    plot.message(figure, "Qwen3-8B: slow where it does not fit, fast where it does")
    plot.key(figure, {"copy": "16 bits", "compute": "4 bits"})
    FIGURE.parent.mkdir(exist_ok=True)
    figure.savefig(FIGURE, dpi=110, metadata={"Description": json.dumps(values), "Software": None})


if __name__ == "__main__":
    README.write_text(with_blocks(README.read_text(encoding="utf-8")), encoding="utf-8")
    draw()
