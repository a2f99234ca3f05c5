"""Notebook 09: who used the slot before, races in a recording, which edge is missing, a broken engine."""

from checks import toy_prefetch as toy
from checks.exercise import Exercise
from checks.toy_prefetch import BrokenEngine, ClockDevice

__all__ = ["BrokenEngine", "ClockDevice", "freed_by", "missing_edge", "races", "repaired"]

# ---- 1: who used the slot before ----

freed_by = Exercise(
    "who used the slot before",
    toy.freed_by,
    (
        (0, 8, 1),
        (1, 8, 1),
        (5, 8, 1),
        (0, 8, 2),
        (1, 5, 2),
        (0, 5, 2),
        (2, 5, 2),
        (4, 5, 2),
        (1, 7, 3),
        (2, 7, 3),
    ),
    {
        "Right while the slots divide the layers. With 5 layers and 2 slots, layer 0 goes into slot 0, and "
        "so did layer 4 of the pass before, not layer 3: each pass starts with slot 0.": toy.in_a_circle,
        "The first layers of a pass wait, too: for a layer of the pass before.": toy.never_wraps,
        "The layer is right. The second number is not: a layer that comes later in the pass was computed in "
        "the pass before.": toy.same_pass,
        "Right, but the second number is to be an int, 0 or 1. Yours is a bool: `int(…)` makes one of it.": (
            toy.as_bool
        ),
        "That is the layer before, whatever the slot. With two slots it lies in the other one.": (
            toy.the_layer_before
        ),
        "At the start of a pass you take the last layer of all. It may have used another slot.": (
            toy.wraps_to_the_last
        ),
        "At the start of a pass you take the layer's own last visit. Others used the slot after it.": (
            toy.itself
        ),
        "That is who uses the slot next. The copy has to wait for who used it before.": toy.the_next_user,
    },
)

# ---- 2: a detector of races ----

_FINE = ({0: (0, 0, 2), 1: (1, 2, 4), 2: (0, 4, 6)}, {0: (2, 4), 1: (4, 6), 2: (6, 8)})
_EARLY = ({0: (0, 0, 4), 1: (1, 4, 8), 2: (0, 8, 12)}, {0: (4, 5), 1: (5, 6), 2: (12, 13)})
_LATE = (
    {0: (0, 0, 1), 1: (1, 1, 2), 2: (0, 2, 3), 3: (1, 9, 10)},
    {0: (1, 5), 1: (5, 9), 2: (9, 13), 3: (13, 17)},
)
_BOTH = ({0: (0, 0, 3), 1: (0, 3, 6), 2: (1, 6, 9)}, {0: (2, 5), 1: (6, 8), 2: (9, 11)})
_GONE = ({0: (0, 0, 1), 1: (0, 1, 2), 2: (1, 2, 3)}, {0: (2, 3), 1: (3, 4), 2: (2, 5)})
_TURNED = ({0: (0, 2, 3), 1: (0, 0, 1)}, {0: (3, 4), 1: (1, 2)})

races = Exercise(
    "races",
    toy.races,
    (_FINE, _EARLY, _LATE, _BOTH, _GONE, _TURNED),
    {
        "You find layers that start too early. A layer can also be overwritten while it is at work.": (
            lambda copies, computes: toy.races(copies, computes, free=False)
        ),
        "You find layers that are overwritten. A layer can also start before its own copy has ended.": (
            lambda copies, computes: toy.races(copies, computes, ready=False)
        ),
        "A copy into another slot does no harm.": (
            lambda copies, computes: toy.races(copies, computes, slots=False)
        ),
        "A copy that came before the layer's own copy does no harm: the layer's own copy replaced it.": (
            lambda copies, computes: toy.races(copies, computes, earlier=True)
        ),
        "Later is what begins later, not what has a higher number: nobody says in which order layers come.": (
            lambda copies, computes: toy.races(copies, computes, by_number=True)
        ),
        "A later copy may even have ended before the computing begins: then all of the weights are another "
        "layer's.": lambda copies, computes: toy.races(copies, computes, while_it_works=True),
        "Both things can be wrong with one layer; list it once.": (
            lambda copies, computes: toy.races(copies, computes, twice=True)
        ),
        "When one ends in the moment in which the other begins, that is no race: so it should be.": (
            lambda copies, computes: toy.races(copies, computes, touching=True)
        ),
    },
)

# ---- 3: which edge is missing ----

REPORTS = {"a": "free", "b": "ready", "c": "wrap", "d": "none", "e": "free"}
_WHY = {
    "a": "A faster link comes too early with something. With what?",
    "b": "A slower link comes too late with something. With what?",
    "c": "What is different about the second pass?",
    "d": "Are the numbers wrong? A missing edge never costs time.",
    "e": "On which side is the change? The link is as it was; computing takes longer now.",
}


def _missing():
    return dict(REPORTS)


def _told(verdicts) -> str | bool:
    """True, or what is wrong with the first verdict that is not right."""
    if not isinstance(verdicts, dict) or set(verdicts) != set(REPORTS):
        return f"Give all {len(REPORTS)} letters in one dictionary."
    for letter, edge in REPORTS.items():
        given = str(verdicts[letter]).strip().lower()
        if given not in {"ready", "free", "wrap", "none"}:
            return f"{letter} is {given!r}, which is none of the four words."
        if given != edge:
            return f"{letter} is not {given!r}. {_WHY[letter]}"
    return True


missing_edge = Exercise(
    "which edge is missing",
    _missing,
    ((),),
    {
        f"a is not 'ready'. {_WHY['a']}": lambda: REPORTS | {"a": "ready"},
        f"b is not 'free'. {_WHY['b']}": lambda: REPORTS | {"b": "free"},
        f"c is not 'ready'. {_WHY['c']}": lambda: REPORTS | {"c": "ready"},
        f"d is not 'free'. {_WHY['d']}": lambda: REPORTS | {"d": "free"},
        f"e is not 'ready'. {_WHY['e']}": lambda: REPORTS | {"e": "ready"},
    },
    run=lambda answer: _told(answer()),
)

# ---- 4: the broken engine ----

repaired = Exercise(
    "repaired engine",
    toy.Engine,
    (
        ("PREFETCH", 1, 1, 1),
        ("PREFETCH", 2, 1, 1),
        ("SLOTS", 3, 1, 5),
        ("SLOTS", 3, 5, 1),
        ("AB", 3, 1, 4),
        ("SLOT", 3, 2, 3),
    ),
    {
        "That is the engine as it was. Try it with a fast link and slow computing, one pass and then two.": (
            BrokenEngine
        ),
        "The first pass is right, a later one is not: the first layers of a pass wait for nobody, although "
        "the last ones of the pass before may still be at work.": toy.engine(forgets=True),
        "Each pass begins well. But a slot counts as free when its computing begins, and not when it ends: "
        "look at where the event is taken.": toy.engine(early=True),
        "Now no computing waits for its copy: the slot may hold the letter from before, or half a letter.": (
            toy.engine(deaf=True)
        ),
        "No copy waits for anything. With a fast link all letters rush through before the first is used.": (
            toy.engine(blind=True)
        ),
        "All letters are right, and nothing overlaps: it takes as long as the naive loop. A copy has to wait "
        "for who used its own slot, not for all computing.": toy.engine(whole=True),
        "All letters are right. But each pass begins by waiting until all computing is done: at that moment "
        "the link has nothing to do. Let the events of the pass before say who has to wait.": (
            toy.engine(drains=True)
        ),
        "The event is kept under the wrong slot.": toy.engine(crossed=True),
        "There are two slots, 0 and 1. A third one would be memory that nobody has.": toy.engine(slots=3),
    },
    run=toy.try_engine,
)
