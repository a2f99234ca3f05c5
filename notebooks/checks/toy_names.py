"""Names of tensors, compared with what is wanted and looked up in an index: right, and in wrong ways."""

from collections.abc import Callable
from math import prod

HEAD = "lm_head.weight"

# ---- both directions ----

Shapes = dict[str, tuple[int, ...]]


def compare(stored: Shapes, wanted: Shapes, tied: bool) -> tuple[list[str], list[str], list[str]]:
    missing = sorted(wanted.keys() - stored.keys())
    extra = sorted(stored.keys() - wanted.keys() - ({HEAD} if tied else set()))
    return missing, extra, sorted(n for n in stored.keys() & wanted.keys() if stored[n] != wanted[n])


def sizes_only(stored: Shapes, wanted: Shapes, tied: bool) -> tuple:
    missing, extra, _ = compare(stored, wanted, tied)
    both = stored.keys() & wanted.keys()
    return missing, extra, sorted(name for name in both if prod(stored[name]) != prod(wanted[name]))


def missing_as_misshaped(stored: Shapes, wanted: Shapes, tied: bool) -> tuple:
    return *compare(stored, wanted, tied)[:2], sorted(n for n in wanted if stored.get(n) != wanted[n])


def in_order(names: object) -> object:
    """A list sorted, so that a short one may come in any order; a long one shows whether its maker sorts.

    Two names that come out of a set are in order in every second process, nine in none.
    """
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        return names
    return "a list that is not sorted" if len(names) > 8 and names != sorted(names) else sorted(names)


def try_compare(answer: Callable, *case: object) -> object:
    given = answer(*case)
    return tuple(map(in_order, given)) if isinstance(given, list | tuple) else given


def unsorted(stored: Shapes, wanted: Shapes, tied: bool) -> tuple:
    return tuple(
        [n for n in dict.fromkeys((*stored, *wanted)) if n in names]
        for names in compare(stored, wanted, tied)
    )


def but(place: int) -> object:
    """The right answer with nothing at `place`."""

    def answer(*case: object) -> tuple:
        return tuple([] if number == place else names for number, names in enumerate(compare(*case)))

    return answer


WANTED = {"embed": (7, 3), "norm": (3,), "q_proj": (4, 3), "up_proj": (5, 3)}
MANY = [f"layers.{(4 * number) % 9}.norm" for number in range(9)]
STORED = {"embed": (7, 3), "q_proj": (3, 4), "up_proj": (5, 2), HEAD: (7, 3), "q_prj": (4, 3)}

# ---- which files ----


def files(weight_map: dict[str, str], layer: int, behind: str = ".") -> list[str]:
    prefix = f"model.layers.{layer}{behind}"
    return sorted({file for name, file in weight_map.items() if name.startswith(prefix)})


def each_time(weight_map: dict[str, str], layer: int) -> list[str]:
    return sorted(file for name, file in weight_map.items() if name.startswith(f"model.layers.{layer}."))


def tensors(weight_map: dict[str, str], layer: int) -> list[str]:
    return sorted(name for name in weight_map if name.startswith(f"model.layers.{layer}."))


def try_files(answer: Callable, weight_map: dict[str, str], layer: int) -> object:
    return in_order(answer(weight_map, layer))


MAP = {"model.embed_tokens.weight": "00", "lm_head.weight": "08"} | {
    f"model.layers.{layer}.{name}.weight": f"{(2 * layer + place) // 3:02}"
    for layer in range(12)
    for place, name in enumerate(("self_attn.q_proj", "mlp.experts.3.up_proj"))
}
SPREAD = {f"model.layers.0.mlp.experts.{number}.up_proj.weight": f"{(4 * number) % 9}" for number in range(9)}
