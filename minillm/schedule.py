"""The schedule of an offloaded pass, as data: what stays, what streams into which slot, what precedes what.

No torch in here. Whoever executes a schedule follows it, the simulator times it, figures draw it, and tests
prove it for any number of layers, budget and slots. A pass feeds tokens through all layers once; the
schedule is one period of an endless run of passes, so the first blocks of the next pass are on their way
while this one ends.
"""

from dataclasses import dataclass, replace

from minillm.geometry import PARTS

HEAD = "head"  # the part that follows the last layer: final norm, head, and the choice of a token


@dataclass(frozen=True, order=True)
class Block:
    """One residual block, the unit that is copied."""

    layer: int
    part: str

    def __str__(self) -> str:
        return self.part if self.part == HEAD else f"{self.part} {self.layer}"


@dataclass(frozen=True)
class Copy:
    """Fill the `block.part` half of a slot from host memory."""

    block: Block
    slot: int

    def __str__(self) -> str:
        return f"copy {self.block} to slot {self.slot}"


@dataclass(frozen=True)
class Compute:
    """Run a block where it lies: in a slot, or resident (None)."""

    block: Block
    slot: int | None = None

    def __str__(self) -> str:
        return f"compute {self.block}"


Step = Copy | Compute


@dataclass(frozen=True)
class Need:
    """`step` of this pass, or of an earlier one, has to be finished."""

    step: Step
    passes_ago: int = 0


@dataclass(frozen=True)
class Placement:
    """Which layers stay and which stream; `streamed[j]` uses slot j mod `slots`."""

    resident: tuple[int, ...]
    streamed: tuple[int, ...]
    slots: int

    @property
    def layers(self) -> int:
        return len(self.resident) + len(self.streamed)

    @property
    def on_device(self) -> int:
        """Layers' worth of weights on the device: never more than the budget."""
        return len(self.resident) + self.slots

    def slot_of(self, layer: int) -> int | None:
        """The slot that a streamed layer passes through, None for a resident one."""
        return self.streamed.index(layer) % self.slots if layer in self.streamed else None


def place(layers: int, budget: int, slots: int) -> Placement:
    """Keep `budget` − `slots` of `layers` layers, evenly spread among the streamed ones; all if they fit.

    Even spreading gives each copy the same time to hide behind. Fewer slots are made where one would serve a
    single layer, which may as well stay. Raises ValueError unless 1 ≤ slots ≤ budget.
    """
    if not 1 <= slots <= budget:
        raise ValueError(f"{slots} slots in a budget of {budget} layers: from 1 to the budget are possible")
    if budget >= layers:
        return Placement(tuple(range(layers)), (), 0)
    while layers - budget + slots < 2 * slots:
        slots -= 1
    moving = layers - budget + slots
    streamed = tuple(i for i in range(layers) if (i + 1) * moving // layers > i * moving // layers)
    return Placement(tuple(i for i in range(layers) if i not in streamed), streamed, slots)


@dataclass(frozen=True)
class Schedule:
    """One pass. Computes run in order on the device; copies go over the link in order, one at a time.

    `needs[step]`: what must be finished before a step may start, beyond its own queue's order.
    """

    placement: Placement
    computes: tuple[Compute, ...]  # every block in forward order, then the head
    copies: tuple[Copy, ...]
    needs: dict[Step, tuple[Need, ...]]

    def without(self, step: Step, need: Need) -> "Schedule":
        """The same with one dependency left out: for those who want to see what it is good for."""
        kept = tuple(other for other in self.needs[step] if other != need)
        return replace(self, needs=self.needs | {step: kept})

    def issued_after(self) -> dict[Compute | None, tuple[tuple[Copy, int], ...]]:
        """Which copies can be handed to the link once a compute has been handed to the device.

        Values are pairs of a copy and how many passes ahead it is for (0 or 1). None as key: copies that need
        no compute at all. A copy is never handed over before the one that precedes it on the link.
        """
        anchors = self._anchors()
        after: dict[Compute | None, list] = {}
        for copy in self.copies:
            index, ahead = anchors[copy]
            after.setdefault(self.computes[index] if index is not None else None, []).append((copy, ahead))
        return {key: tuple(sorted(found, key=lambda pair: pair[1])) for key, found in after.items()}

    def _anchors(self) -> dict[Copy, tuple[int | None, int]]:
        """For each copy the last compute among its and its predecessors' needs, and the passes between."""
        place_of = {compute: index for index, compute in enumerate(self.computes)}
        size, latest, anchors = len(self.computes), -1, {}
        for period in range(3):  # the third pass no longer feels that there was a first
            for copy in self.copies:
                for need in self.needs.get(copy, ()):
                    if isinstance(need.step, Compute) and period >= need.passes_ago:
                        latest = max(latest, (period - need.passes_ago) * size + place_of[need.step])
                ago, index = period - latest // size, latest % size
                anchors[copy] = (index, ago) if latest >= 0 else (None, 0)
        return anchors


def prefetch(placement: Placement) -> Schedule:
    """Refill a slot block by block, each as soon as the block that lies there has been computed."""
    copies = _copies(placement)
    needs: dict[Step, tuple[Need, ...]] = {}
    for number, copy in enumerate(copies):
        needs[Compute(copy.block, copy.slot)] = (Need(copy),)
        needs[copy] = (_before_in_slot(copies, number),)
    return Schedule(placement, _computes(placement), copies, needs)


def naive(placement: Placement) -> Schedule:
    """Copy a layer when it is reached, compute when all of it is there: one thing at a time."""
    computes, copies = _computes(placement), _copies(placement)
    place_of = {compute.block: index for index, compute in enumerate(computes)}
    needs: dict[Step, tuple[Need, ...]] = {}
    for attention, mlp in zip(copies[::2], copies[1::2], strict=True):
        index = place_of[attention.block]
        before = Need(computes[index - 1], passes_ago=int(index == 0))
        needs |= {attention: (before,), mlp: (before,)}
        needs[computes[index]] = (Need(attention), Need(mlp))
    return Schedule(placement, computes, copies, needs)


def _computes(placement: Placement) -> tuple[Compute, ...]:
    blocks = [Block(layer, part) for layer in range(placement.layers) for part in PARTS]
    head = Compute(Block(placement.layers, HEAD))
    return (*(Compute(block, placement.slot_of(block.layer)) for block in blocks), head)


def _copies(placement: Placement) -> tuple[Copy, ...]:
    return tuple(
        Copy(Block(layer, part), number % placement.slots)
        for number, layer in enumerate(placement.streamed)
        for part in PARTS
    )


def _before_in_slot(copies: tuple[Copy, ...], number: int) -> Need:
    """The compute that last used the half of the slot that copy `number` fills: at the latest its own."""
    copy = copies[number]
    for back in range(1, len(copies) + 1):
        other = copies[number - back]  # a negative index goes back into the pass before
        if (other.slot, other.block.part) == (copy.slot, copy.block.part):
            break
    return Need(Compute(other.block, other.slot), passes_ago=int(back > number))
