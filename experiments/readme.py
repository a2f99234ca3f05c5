"""Writes the numbers and the figure of README.md: predictions from published bandwidth, course map, models.

    python -m experiments.readme

Each block stands between two comment lines; a test fails when a block is not what this module would write.
"""

import json
import re
from dataclasses import replace

from experiments.machine import ROOT
from experiments.readme_measured import (
    fewer_table,
    offload_note,
    offload_table,
    table,
    vllm_note,
    vllm_table,
)
from minillm.budget import PLANNED_TOKENS, Decision
from minillm.cli.plan import on_card
from minillm.config import DTYPES, ModelConfig
from minillm.estimate import Estimate, estimate
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
CARD = PUBLISHED["rtx3070"]  # the course's
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
    answer = fastest(PRESETS[model], card)
    if answer.tokens_per_s is None:
        return "–"
    return short(answer.tokens_per_s) + (NOTES[answer.placement] if card.link_gb_s else "")


def fastest(config: ModelConfig, card: Hardware) -> Estimate:
    """As `plan` has it on the GPU, or the CPU alone where layers would stream and that is faster."""
    alone, planned = on_cpu(config, card), _planned(config, card)
    if planned is None:
        return alone
    by_gpu = _on_gpu(*planned)
    if by_gpu.placement == "GPU":
        return by_gpu
    if alone.tokens_per_s is None:  # what streams lies in main memory, too
        return alone
    return max(by_gpu, alone, key=lambda each: each.tokens_per_s)


def on_cpu(config: ModelConfig, card: Hardware) -> Estimate:
    """As if the machine had no GPU."""
    return estimate(config, replace(card, gpu_memory_bytes=None, gpu_gb_s=None, link_gb_s=None))


def _on_gpu(decision: Decision, made: Prediction) -> Estimate:
    where = "GPU" if decision.mode == "none" else "GPU + link"
    return Estimate(where, made.tokens_per_s, len(decision.placement.resident))


def _planned(config: ModelConfig, card: Hardware) -> tuple[Decision, Prediction] | None:
    """Placement and speed as `plan --hardware` gives them; None without a GPU."""
    if card.gpu_memory_bytes is None:
        return None
    return on_card(card, config, DTYPES[config.dtype], PLANNED_TOKENS)


def in_4_bits(card: Hardware) -> tuple[Decision, Prediction] | None:
    """Placement and speed as `plan --quantize int4` gives them; None on a CPU, where int4 saves no time."""
    return _planned(quantised(PRESETS[IN_4_BITS], "int4"), card)


def _cell_in_4_bits(card: Hardware) -> str:
    found = in_4_bits(card)
    if found is None:
        return "–"
    decision, made = found
    return short(made.tokens_per_s) + ("" if decision.mode == "none" else NOTES["GPU + link"])


def stored_note() -> str:
    """What stands under the table: what `plan` counts, and whether streaming gains anything."""
    config = quantised(PRESETS[IN_4_BITS], "int4")
    *layers, head = (read_bytes(config, block, DTYPES[config.dtype]) / GB for block in blocks(config))
    alone, streamed = on_cpu(PRESETS[IN_4_BITS], CARD), _on_gpu(*_planned(PRESETS[IN_4_BITS], CARD))
    return (
        f"³ As `plan --quantize int4` says: a token reads {sum(layers):.1f} GB of layers, with their scales, "
        f"and {head:.1f} GB of head, which stays in 16 bits.\n\n"
        f"Where a GPU computes there is room for {PLANNED_TOKENS:,} tokens. Streaming gains little on the "
        f"{CARD.name.partition(',')[0]} with {IN_4_BITS} in 16 bits: {streamed.tokens_per_s:.2f} tokens a "
        f"second against {alone.tokens_per_s:.2f} on the CPU alone. It pays there with a faster link, longer "
        "prompts or fewer bits."
    )


def there_note() -> str:
    """How many notebooks of data/course.json exist."""
    rows = _course()
    return (
        f"{sum(bool(file) for _, file in rows)} of {len(rows)} notebooks are there ([the list](#the-course))."
    )


def _course() -> list[tuple[dict, str | None]]:
    """Each notebook of data/course.json with the name of its file, None where there is none yet."""
    rows = json.loads((ROOT / "data" / "course.json").read_text(encoding="utf-8"))
    found = (sorted(ROOT.glob(f"notebooks/{row['number']}_*.ipynb")) for row in rows)
    return [(row, files[0].name if files else None) for row, files in zip(rows, found, strict=True)]


def course_table() -> str:
    """The notebooks of data/course.json; those that exist are links."""
    rows = ["| | question | you build |", "| --- | --- | --- |"]
    for row, file in _course():
        number = f"[{row['number']}](notebooks/{file})" if file else row["number"]
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
    "there": there_note,
    "predicted": predicted_table,
    "stored": stored_note,
    "offload": offload_table,
    "sweep": offload_note,
    "fewer": fewer_table,
    "vllm": vllm_table,
    "beside": vllm_note,
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
        wide, narrow = fastest(PRESETS[IN_4_BITS], card).tokens_per_s, found and found[1].tokens_per_s
        speeds[card.name] = [round(wide, 2), narrow and round(narrow, 2)]
    return speeds


def figure_title() -> str:
    """What main memory allows at most, read by link or by CPU, and what a card's own memory does."""
    config, far, near = PRESETS[IN_4_BITS], [], []
    for card in MACHINES:
        wide, narrow = fastest(config, card), in_4_bits(card)
        for answer in [wide, *([_on_gpu(*narrow)] if narrow else [])]:
            (near if answer.placement == "GPU" else far).append(answer.tokens_per_s)
    least, most = short(min(near)), short(max(near))
    return (
        f"{IN_4_BITS}: main memory allows {short(max(far))} tokens a second, a card’s own {least} to {most}"
    )


def draw() -> None:
    """The figure of the first screen; its numbers are stored in the file, for the test."""
    from matplotlib import pyplot as plt

    from minillm import plot

    plot.use()
    values = figure_values()
    figure, axes = plt.subplots(figsize=(8, 2.9))
    _dots(axes, values)
    plot.decades(axes, 1, 1000)
    axes.set_xlabel("tokens a second that bandwidth allows (predicted)")
    plot.message(figure, figure_title())
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
