"""Tables of the report about models that stream: offloading, budgets, simulator, loading, larger models."""

from collections.abc import Sequence

from experiments.offloaded import on_card
from experiments.report_fits import CARD_HEAD, amount, spread
from experiments.report_results import (
    NOT_YET,
    NOTHING,
    Archive,
    Stored,
    caption,
    middle,
    milliseconds,
    most,
    number,
    over,
    size,
)
from experiments.report_rows import Group, groups, is_resident, most_memory, ran, reason, speed
from experiments.report_table import ABSENT, Table
from minillm.presets import PRESETS
from minillm.schedule import place
from minillm.units import GB


def offloaded(archive: Archive, model: str = "Qwen3-8B") -> Table:
    """Naive, prefetch and accelerate: the same layers stay. Each over the link that its command found."""
    stored = archive.get("offload_compare")
    modes = {
        mode: [r for r in stored.rows(f"{mode}/") if "ttft_s" in r]
        for mode in ("naive", "prefetch", "accelerate")
    }
    limit = most(modes["prefetch"], "limit_tokens_per_s")
    rows = tuple(_offloaded(mode, rows, limit) for mode, rows in modes.items())
    cap = stored.content.get("settings", {}).get("cap_gib")
    title = f"{model} offloaded" + (f", GPU memory capped at {cap:.1f} GiB" if cap else "")
    notes = (
        "Of the limit: of what the link allows for the bytes that stream, as each command measured it; with "
        f"prefetch {number(limit)} tok/s.",
        *stored.content.get("notes", ()),
    )
    return Table(caption(title, stored), _OFFLOADED, rows, notes)


_OFFLOADED = (
    *(
        "program",
        "layers on the GPU",
        "prompts × tokens",
        "prefill latency, TTFT",
        "decode, tok/s",
        "of the limit",
    ),
    *("peak GPU memory", CARD_HEAD),
)


def _offloaded(name: str, rows: Sequence[dict], limit: float | None) -> tuple[str, ...]:
    if not rows:
        return (name, NOT_YET)
    limit = most(rows, "limit_tokens_per_s") or limit
    return (
        name,
        on_device(rows[0]),
        amount(rows),
        milliseconds(middle(rows, "ttft_s")),
        number(speed(rows)),
        number(over(speed(rows), limit), ".0%"),
        size(most(rows, "peak_bytes")),
        number(rows[0]["rtx3070_tokens_per_s"]) if rows[0].get("rtx3070_tokens_per_s") else NOTHING,
    )


def on_device(row: dict) -> str:
    """Layers that stay and slots, "12 + 1"; without slots "12"."""
    return str(row.get("resident", NOTHING)) + (f" + {row['slots']}" if row.get("slots") else "")


def beside_vllm(archive: Archive, model: str = "Qwen3-8B") -> Table:
    """Our prefetch and vLLM's two offloaders in one command."""
    stored = archive.get("vllm")
    found = {name: rows for name, rows in groups(stored, model).items() if not is_resident(rows[0])}
    head = (
        "program",
        "layers on the GPU",
        "prompts × tokens",
        "prefill latency, TTFT",
        "decode, tok/s",
        "range",
    )
    head += ("peak GPU memory", "locked host memory", CARD_HEAD)
    rows = tuple(_beside(stored, model, name, rows) for name, rows in found.items())
    notes = (
        "Layers on the GPU: those that stay, and slots that the others pass through. Peak memory: of the "
        "longest prompt, with a KV cache of the same number of tokens on both sides.",
        *(note for note in stored.content.get("notes", ()) if not note.startswith("Resident")),
    )
    return Table(caption(f"{model}, offloaded, beside vLLM", stored), head, rows or ABSENT, notes)


def _beside(stored: Stored, model: str, name: str, found: Group) -> tuple[str, ...]:
    rows = ran(found)
    if not rows:
        return (name, f"not measured: {reason(found[0])}")
    row = rows[0]
    return (
        name,
        on_device(row),
        amount(rows),
        milliseconds(middle(rows, "ttft_s")),
        number(speed(rows)),
        spread(rows),
        size(most_memory(stored, model, name)),
        size(most(rows, "host_locked_bytes")),
        number(_card(row, model)) if row.get("engine") == "minillm" and row.get("budget") else NOTHING,
    )


def _card(row: dict, model: str) -> float | None:
    config = PRESETS[model]
    placement = place(config.num_hidden_layers, row["budget"], row.get("slots") or 1)
    return on_card(config, 2, row["mode"], placement, row.get("peak_bytes") or 0)


def long_prompts(archive: Archive) -> Table:
    """First tokens of long prompts when layers stream: the larger of link and computing is the bound."""
    stored = archive.get("offload_compare")
    head = (
        "prompt",
        "slots",
        "TTFT",
        "the link needs",
        "computing needs",
        "TTFT over the larger",
        "RTX 3070’s link, predicted",
    )
    rows = tuple(_long_prompt(row) for row in stored.rows("ttft/"))
    notes = (
        "The last column is the card’s link alone. Its processors are slower, too: of a long prompt its "
        "computing may well take longer than that.",
    )
    return Table(caption("Qwen3-8B, prefetch: prefill latency", stored), head, rows or ABSENT, notes)


def _long_prompt(row: dict) -> tuple[str, ...]:
    bound = max(row["link_s"], row["resident_prefill_s"])
    times = (milliseconds(row[name]) for name in ("ttft_s", "link_s", "resident_prefill_s"))
    tokens, ratio = f"{row['prompt_tokens']:,} tokens", number(over(row["ttft_s"], bound), ".3f")
    return (tokens, str(row["slots"]), *times, ratio, milliseconds(row.get("rtx3070_link_s")))


def sweep(archive: Archive) -> Table:
    """Each budget: measured, limit of the link, simulated, and the course's card."""
    stored = archive.get("budget_sweep")
    rows = tuple(_sweep(row, stored) for row in stored.rows("prefetch/"))
    head = (
        "budget N",
        "streamed a token",
        "peak GPU memory",
        "naive",
        "prefetch",
        "over naive",
        "limit of the link",
    )
    head += ("simulated", CARD_HEAD)
    notes = ("Tokens a second. N counts the slot; “too large”: more than the card has.",)
    return Table(caption("Qwen3-8B: one more layer, and one more", stored), head, rows or ABSENT, notes)


def _sweep(row: dict, stored: Stored) -> tuple[str, ...]:
    naive = stored.row(f"naive/{row['budget']}").get("tokens_per_s")
    return (
        f"{row['budget']} of {row['resident'] + row['streamed']}",
        f"{row['streamed_bytes'] / GB:.1f} GB",
        size(row["peak_bytes"]),
        number(naive),
        number(row["tokens_per_s"]),
        number(over(row["tokens_per_s"], naive)),
        number(row["limit_tokens_per_s"]) if row["limit_tokens_per_s"] else NOTHING,
        number(row["simulated_tokens_per_s"]),
        number(row["rtx3070_tokens_per_s"]) if row["rtx3070_tokens_per_s"] else "too large",
    )


def simulator(archive: Archive) -> Table:
    """How far the forecast was from the measurement, by kind of placement."""
    stored = archive.get("simulator")
    kinds = {"prefetch, something streams": [], "naive, something streams": [], "nothing streams": []}
    whole = max((row["budget"] for row in stored.rows()), default=0)
    for row in stored.rows():
        kind = "nothing streams" if row["budget"] == whole else f"{row['mode']}, something streams"
        kinds[kind].append(row["ratio"])
    head = ("placements", "how many", "lowest", "highest", "allowed")
    rows = tuple(
        (
            kind,
            str(len(found)),
            *(number(value, ".3f") for value in (min(found, default=None), max(found, default=None))),
            "0.95 to 1.05",
        )
        for kind, found in kinds.items()
    )
    return Table(caption("Simulated over measured tok/s", stored), head, rows)


def loading(archive: Archive) -> Table:
    """Peak memory over the weights and seconds, by way of loading."""
    ways = {"minillm": "minillm", "naive": "model made, all files read, then copied"}
    ways["transformers"] = "transformers: weights stay in mapped files"
    rows = []
    for stored in (archive.get("loading", "cpu2"), archive.get("loading")):
        for prefix in dict.fromkeys(row["key"].rpartition("/")[0] for row in stored.rows()):
            found = stored.rows(f"{prefix}/")
            model, way = prefix.split("/")
            ratio = middle(({"ratio": row["peak_bytes"] / row["weight_bytes"]} for row in found), "ratio")
            where = (model, ways.get(way, f"minillm, {way}: into locked memory"), stored.place)
            weights = size(found[0]["weight_bytes"])
            rows.append(
                (*where, weights, number(ratio), number(min(row["seconds"] for row in found), ".2f", "s"))
            )
    head = ("model", "way", "machine", "weights", "peak memory over weights", "time")
    notes = (
        "Files in the page cache, best of repetitions. Peak memory: of the process, without mapped files.",
    )
    title = "Loading" if rows else f"Loading: {NOT_YET}"
    return Table(title, head, tuple(rows) or ABSENT, notes)


def load_steps(archive: Archive) -> Table:
    """What loading into locked memory consists of, beside a plain copy of the same bytes."""
    stored = archive.get("loading")
    row = next(iter(stored.rows()), {})
    steps = {
        "touching pages": "touch_s",
        "locking them": "pin_s",
        "filling from files": "fill_s",
    }
    rows = [(name, number(row.get(field), ".2f", "s")) for name, field in steps.items()]
    told = [row.get(field) for field in ("seconds", *steps.values())]
    rest = None if None in told else told[0] - sum(told[1:])
    rows.append(("the rest: block costs, plan, compiling", number(rest, ".2f", "s")))
    rows.append(("all", number(row.get("seconds"), ".2f", "s")))
    copy = over(row.get("arena_bytes"), (row.get("memcpy_gb_s") or 0) * GB)
    rows.append(("a plain copy of as many bytes", number(copy, ".2f", "s")))
    return Table(caption("Qwen3-8B into locked host memory", stored), ("step", "time"), tuple(rows))


def bigger(archive: Archive, models: Sequence[str] = ("Qwen3-8B", "Qwen3-14B", "Qwen3-32B")) -> Table:
    """The same GPU memory, larger models."""
    stored = archive.get("bigger_models")
    rows = tuple(_bigger(name, stored.row(f"{name}/prefetch")) for name in models)
    head = (
        "model",
        "layers that stay",
        "streamed a token",
        "decode, tok/s",
        "limit of the link",
        "of the limit",
    )
    head += ("peak GPU memory", "locked host memory", CARD_HEAD)
    return Table(caption("Larger models under the same cap", stored), head, rows)


def _bigger(name: str, row: dict) -> tuple[str, ...]:
    if not row:
        return (name, NOT_YET)
    return (
        name,
        f"{row['resident']} of {row['resident'] + row['streamed']}",
        f"{row['streamed_bytes'] / GB:.1f} GB",
        number(row["tokens_per_s"]),
        number(row["limit_tokens_per_s"]),
        number(over(row["tokens_per_s"], row["limit_tokens_per_s"]), ".1%"),
        size(row["peak_bytes"]),
        size(row["host_locked_bytes"]),
        number(row["rtx3070_tokens_per_s"]) if row["rtx3070_tokens_per_s"] else "too large",
    )
