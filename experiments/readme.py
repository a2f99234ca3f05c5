"""Writes the numbers and the figure of README.md: predictions from published bandwidth, course map, models.

    python -m experiments.readme

Each block stands between two comment lines; a test fails when a block is not what this module would write.
"""

import json
import re

from experiments.machine import ROOT
from experiments.readme_measured import fewer_table, offload_table, table, vllm_table
from minillm.budget import PLANNED_TOKENS, Decision
from minillm.cli.plan import on_card
from minillm.config import DTYPES
from minillm.estimate import estimate
from minillm.hardware import PUBLISHED, Hardware
from minillm.model_source import SHIPPED
from minillm.predict import Prediction, blocks, read_bytes
from minillm.presets import PRESETS
from minillm.quant.mix import quantised
from minillm.units import GB, short
from training.card import experts, used_parameters
from training.skills import SKILLS

README = ROOT / "README.md"
FIGURE = ROOT / "data" / "figures" / "predicted_8b.png"
MACHINES = [PUBLISHED[name] for name in ("rtx2080ti", "rtx3070", "rtx4090", "laptop")]  # of learners
MODELS = ("Qwen3-1.7B", "Qwen3-4B", "Qwen3-8B", "Qwen3-14B")
IN_4_BITS = "Qwen3-8B"
NOTES = {"GPU": "", "GPU + link": " ¹", "CPU": " ²"}


def predicted_table() -> str:
    """Tokens a second that bandwidth allows: a row for each machine, a column for each model."""
    head = ["machine", "memory", "link", *MODELS, f"{IN_4_BITS} in 4 bits ³"]
    rows = [head, ["---"] * len(head)]
    for card in MACHINES:
        rate = card.gpu_gb_s or card.host_gb_s
        link = f"{card.link_gb_s:g} GB/s" if card.link_gb_s else "–"
        speeds = [*(_cell(model, card) for model in MODELS), _cell_in_4_bits(card)]
        rows.append([card.name, f"{rate:,g} GB/s", link, *speeds])
    return table(rows)


def _cell(model: str, card: Hardware) -> str:
    answer = estimate(PRESETS[model], card)
    if answer.tokens_per_s is None:
        return "–"
    return short(answer.tokens_per_s) + (NOTES[answer.placement] if card.link_gb_s else "")


def in_4_bits(card: Hardware) -> tuple[Decision, Prediction] | None:
    """Placement and speed as `plan --quantize int4` gives them; None on a CPU, where int4 saves no time."""
    if card.gpu_memory_bytes is None:
        return None
    config = quantised(PRESETS[IN_4_BITS], "int4")
    return on_card(card, config, DTYPES[config.dtype], PLANNED_TOKENS)


def _cell_in_4_bits(card: Hardware) -> str:
    found = in_4_bits(card)
    if found is None:
        return "–"
    decision, made = found
    return short(made.tokens_per_s) + ("" if decision.mode == "none" else NOTES["GPU + link"])


def stored_note() -> str:
    """What stands under the column in 4 bits: what a token reads, by the engine's own sizes."""
    config = quantised(PRESETS[IN_4_BITS], "int4")
    *layers, head = (read_bytes(config, block, DTYPES[config.dtype]) / GB for block in blocks(config))
    return (
        f"³ As `plan --quantize int4` says: a token reads {sum(layers):.1f} GB of layers, with their scales, "
        f"and {head:.1f} GB of head, which stays in 16 bits. There is room for {PLANNED_TOKENS:,} tokens."
    )


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
    return table(rows)


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


BLOCKS = {
    "predicted": predicted_table,
    "stored": stored_note,
    "offload": offload_table,
    "fewer": fewer_table,
    "vllm": vllm_table,
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


def figure_values() -> dict[str, list[float | None]]:
    """Qwen3-8B on each machine: tokens a second at 16 bits, and in 4 bits where that is faster."""
    speeds = {}
    for card in MACHINES:
        found = in_4_bits(card)
        wide, narrow = estimate(PRESETS[IN_4_BITS], card).tokens_per_s, found and found[1].tokens_per_s
        speeds[card.name] = [round(wide, 2), narrow and round(narrow, 2)]
    return speeds


def draw() -> None:
    """The figure of the first screen; its numbers are stored in the file, for the test."""
    from matplotlib import pyplot as plt

    from minillm import plot

    plot.use()
    values = figure_values()
    figure, axes = plt.subplots(figsize=(8, 2.9))
    _dots(axes, values)
    plot.limit(axes, 7, "you read this fast")
    plot.decades(axes, 1, 1000)
    axes.set_xlabel("tokens a second that bandwidth allows (predicted)")
    plot.message(figure, "Qwen3-8B: slow where it does not fit, fast where it does")
    plot.key(figure, {"copy": "16 bits", "compute": "4 bits (int4, as this engine stores it)"})
    FIGURE.parent.mkdir(exist_ok=True)
    figure.savefig(FIGURE, dpi=110, metadata={"Description": json.dumps(values), "Software": None})


def _dots(axes, values: dict[str, list[float | None]]) -> None:
    """A pair of dots a machine; below them one dot each where 4 bits are no faster."""
    from minillm import plot

    whole = {name: pair for name, pair in values.items() if pair[1] is not None}
    left, right = zip(*whole.values(), strict=True)
    plot.pairs(axes, list(whole), left, right, kinds=("copy", "compute"))
    alone = {name: wide for name, (wide, narrow) in values.items() if narrow is None}
    for row, speed in enumerate(alone.values(), start=len(whole)):
        axes.scatter([speed], [row], s=70, marker="o", color=plot.COLOURS["copy"], zorder=2)
        place = {"xytext": (0, 8), "textcoords": "offset points", "ha": "center"}
        axes.annotate(short(speed), (speed, row), fontsize=8.5, **place)
    axes.set_yticks(range(len(values)), labels=[*whole, *alone])
    axes.set_ylim(len(values) - 0.4, -0.6)


if __name__ == "__main__":
    README.write_text(with_blocks(README.read_text(encoding="utf-8")), encoding="utf-8")
    draw()
