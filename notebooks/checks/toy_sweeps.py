"""Knees, budgets and sweeps of toy models, right and wrong."""

from collections.abc import Callable
from math import ceil
from operator import le, lt

from minillm.schedule import naive, place, prefetch
from minillm.simulate import simulate

GB, GIB = 1e9, 2**30

# ---- the knee ----


def knee(
    layers: int, slots: int, layer_bytes: float, head_bytes: float, link_gb_s: float, device_gb_s: float,
    *, streamed: Callable | None = None, read: Callable | None = None, least: int | None = None,
    enough: Callable = le,
) -> int:  # fmt: skip
    """`streamed(budget)` in layers and `read(budget)` in bytes: what a wrong answer counts instead.

    `least`: the budget it looks at first; `enough`: how it compares copying with computing.
    """
    for budget in range(slots if least is None else least, layers):
        moving = streamed(budget) if streamed else layers - budget + slots
        taking_part = read(budget) if read else layers * layer_bytes + head_bytes
        if enough(moving * layer_bytes / (link_gb_s * GB), taking_part / (device_gb_s * GB)):
            return budget
    return layers


def knee_between(layers, slots, layer_bytes, head_bytes, link_gb_s, device_gb_s) -> float:
    """Where the two times are equal, which is between two whole budgets."""
    read = layers * layer_bytes + head_bytes
    return layers + slots - read / device_gb_s * link_gb_s / layer_bytes


def knee_shorter(*case) -> int:
    """Where copying is shorter than computing, not where it is no longer."""
    return knee(*case, enough=lt)


def knee_from_one(*case) -> int:
    return knee(*case, least=1)


def knee_from_zero(*case) -> int:
    return knee(*case, least=0)


def knee_below(layers, *case) -> int:
    """Right at the model's end, but not held to at least the slots."""
    return min(layers, ceil(knee_between(layers, *case)))


def knee_without_slots(layers, slots, *sizes) -> int:
    return knee(layers, slots, *sizes, streamed=lambda budget: layers - budget)


def knee_slots_stay(layers, slots, *sizes) -> int:
    return knee(layers, slots, *sizes, streamed=lambda budget: layers - budget - slots)


def knee_without_head(layers, slots, layer_bytes, head_bytes, *rates) -> int:
    return knee(layers, slots, layer_bytes, 0.0, *rates)


def knee_residents_only(layers, slots, layer_bytes, head_bytes, *rates) -> int:
    def read(budget):
        return (budget - slots) * layer_bytes + head_bytes

    return knee(layers, slots, layer_bytes, head_bytes, *rates, read=read)


def knee_streamed_only(layers, slots, layer_bytes, head_bytes, *rates) -> int:
    def read(budget):
        return (layers - budget + slots) * layer_bytes

    return knee(layers, slots, layer_bytes, head_bytes, *rates, read=read)


def knee_turned(layers, slots, layer_bytes, head_bytes, link_gb_s, device_gb_s) -> int:
    return knee(layers, slots, layer_bytes, head_bytes, device_gb_s, link_gb_s)


def knee_as_streamed(layers, slots, *sizes) -> int:
    budget = knee(layers, slots, *sizes)
    return layers - budget + slots if budget < layers else 0


def knee_last_before(layers, slots, *sizes) -> int:
    return int(knee_between(layers, slots, *sizes))


def knee_rounded(layers, slots, *sizes) -> int:
    return min(layers, round(knee_between(layers, slots, *sizes)))


def knee_beyond(layers, slots, *sizes) -> int:
    return max(slots, ceil(knee_between(layers, slots, *sizes)))


def knee_unbounded(*case) -> int:
    return ceil(knee_between(*case))


def knee_none(layers, slots, *sizes) -> int | None:
    return None if knee_between(layers, slots, *sizes) > layers else knee(layers, slots, *sizes)


def knee_as_residents(layers, slots, *sizes) -> int:
    budget = knee(layers, slots, *sizes)
    return budget - slots if budget < layers else layers


# ---- the largest budget ----


def largest(
    gpu_memory_gib, layers, layer_bytes, head_bytes, kv_bytes, tokens, *,
    unit=GIB, kv_share=1.0, head_share=1.0, kv_in_layer=0.0, slots=0, rounded=int, least=0, capped=True,
) -> int:  # fmt: skip
    """The keywords are what wrong answers count otherwise."""
    free = gpu_memory_gib * unit - head_share * head_bytes - kv_share * tokens * kv_bytes
    budget = rounded(free / (layer_bytes + kv_in_layer * tokens * kv_bytes)) - slots
    budget = budget if least is None else max(least, budget)
    return min(layers, budget) if capped else budget


# ---- sweeps that do not fit their forecast ----

LAYERS, budgets = 24, (1, 4, 8, 12, 16, 20, 22, 24)
BLOCKS = {"attention": 0.06, "mlp": 0.14, "head": 0.4}  # GB


def speeds(link_gb_s=20.0, device_gb_s=200.0, slots=1, make=prefetch) -> list[float]:
    """Tokens a second at each of budgets."""

    def speed(budget):
        timeline = simulate(
            make(place(LAYERS, budget, min(budget, slots))),
            copy_s=lambda block: BLOCKS[block.part] / link_gb_s,
            compute_s=lambda block, _: BLOCKS[block.part] / device_gb_s,
        )
        return 1 / timeline.seconds_a_pass

    return [speed(budget) for budget in budgets]


def _measured(noise: int, **changes) -> list[float]:
    """Speeds that vary by up to one percent, as measurements do."""
    wobble = (0.4, -0.7, 0.2, 0.9, -0.3, -0.9, 0.6, -0.1)
    return [
        round(speed * (1 + wobble[(place + noise) % len(wobble)] / 100), 2)
        for place, speed in enumerate(speeds(**changes))
    ]


forecast = [round(speed, 2) for speed in speeds()]
measured = {
    "A": _measured(0, slots=2),
    "B": _measured(1, device_gb_s=120.0),
    "C": _measured(2, link_gb_s=16.0),
    "D": _measured(3),
    "E": _measured(4, make=naive),
}
FAULTS = {"A": "slots", "B": "compute", "C": "link", "D": "none", "E": "naive"}
EXPERIMENTS = {
    "A": "Which budget of the forecast has the speed that was measured at 4, at 8, at 12? And why is the "
    "very first budget, 1, not slower? What can it not have?",
    "B": "Where is the ratio of measured to forecast 1, and where not? What sets the speed there?",
    "C": "Where is the ratio of measured to forecast 1, and where not? What sets the speed there?",
    "D": "How far is the ratio of measured to forecast from 1?",
    "E": "Take 1 / speed: seconds a token. How many more seconds than in the forecast are measured, at "
    "each budget?",
}
