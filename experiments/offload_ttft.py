"""The time to the first token of long prompts through an offloading model, and with every layer resident.

Slots are chosen by simulating a prefill of each length. A prompt goes through the layers once, so no more has
to be waited for than the streamed bytes of one pass.
"""

import argparse
from dataclasses import asdict
from statistics import median

from experiments import offload_options
from experiments.offload_checks import peak_checks
from experiments.offload_options import progress
from experiments.offloaded import CARD, Offloaded
from experiments.results import Results, check
from minillm import schedule
from minillm.predict import decode
from minillm.units import GB

REPEATS = 5  # of a prefill; the median counts
GOAL = 1.06
ALIKE = 1.01


def choose_slots(results: Results, options: argparse.Namespace) -> None:
    """A row a length: the simulated seconds of a prefill with one slot and with two, and the better one."""
    for length in options.lengths:
        results.row(f"slots/{length}", lambda length=length: simulated(options, length))


def simulated(options: argparse.Namespace, length: int) -> dict:
    """What a block costs with so many tokens is measured, before anything is loaded.

    Of two that come out alike, two slots: they have time to spare where a computation takes longer than that.
    """
    config, dtype = offload_options.config_of(options)
    times = offload_options.measure_blocks(options, tokens=length)
    choices = [slots for slots in (1, 2) if slots <= options.budget]
    places = [schedule.place(config.num_hidden_layers, options.budget, slots) for slots in choices]
    seconds = [decode(config, dtype.itemsize, "prefetch", place, times).seconds for place in places]
    alike = [slots for slots, each in zip(choices, seconds, strict=True) if each <= ALIKE * min(seconds)]
    return {"slots": max(alike), "simulated_s": seconds, "blocks": asdict(times)}


def measure(results: Results, offloaded: Offloaded) -> None:
    """Prefills under the cap, then the same with every layer resident and the cap lifted."""
    options, config = offloaded.options, offloaded.config
    for length in options.lengths:

        def streamed(length: int = length) -> dict:
            slots = results.rows(f"slots/{length}")[0]["slots"]
            offloaded.place("prefetch", options.budget, slots=slots)
            return {**offloaded.placed("prefetch"), "cap_gib": options.cap_gib, **prefill(offloaded, length)}

        results.row(f"streamed_prefill/{length}", streamed)
    offload_options.limit_memory(options.device, None)
    offloaded.place("resident", config.num_hidden_layers)
    for length in options.lengths:
        results.row(f"resident_prefill/{length}", lambda length=length: prefill(offloaded, length))
        found = results.row(f"ttft/{length}", lambda length=length: combined(results, length))
        progress(f"ttft/{length}: {found['ttft_s']:.4f} s, link {found['link_s']:.4f} s")


def prefill(offloaded: Offloaded, length: int) -> dict:
    """Seconds to the first token of a prompt of so many tokens, one to warm up not counted."""
    prompt = offload_options.joined_prompt(offloaded.config, length)
    offloaded.warm(prompt)
    runs = [offloaded.run(prompt, 1) for _ in range(REPEATS)]
    all_s = [run["ttft_s"] for run in runs]
    kept = ("prompt_tokens", "peak_bytes", "held_bytes", "predicted_peak_bytes", "copied_bytes_a_pass")
    return {"ttft_s": median(all_s), "ttfts_s": all_s, **{name: runs[0][name] for name in kept}}


def combined(results: Results, length: int) -> dict:
    """What the two kinds of prefill say together."""
    streamed, resident = (results.rows(f"{kind}_prefill/{length}")[0] for kind in ("streamed", "resident"))
    copied = streamed["streamed_bytes"]
    return {
        "prompt_tokens": length,
        "slots": streamed["slots"],
        "streamed_bytes": copied,
        "ttft_s": streamed["ttft_s"],
        "link_s": copied / (streamed["link_gb_s"] * GB),
        "resident_prefill_s": resident["ttft_s"],
        "rtx3070_link_s": copied / (CARD.link_gb_s * GB),
    }


def checks(results: Results) -> list[dict]:
    """Each over what bounds it: the link, or the computing; and memory."""
    rows, streamed = results.rows("ttft/"), results.rows("streamed_prefill/")
    name = "prompt tokens: TTFT over max(streamed bytes over the link, resident prefill)"
    bounds = [max(row["link_s"], row["resident_prefill_s"]) for row in rows]
    ratios = [
        check(f"{row['prompt_tokens']} {name}", row["ttft_s"] / bound, GOAL, "lower")
        for row, bound in zip(rows, bounds, strict=True)
    ]
    return [*ratios, *(peak_checks("prefill", streamed) if streamed else [])]
