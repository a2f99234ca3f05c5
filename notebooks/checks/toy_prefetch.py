"""A device with two queues on a clock of its own, and engines that send layers through its slots."""

from dataclasses import dataclass

SLOTS = 2
UNKNOWN = "?"  # what is read from a slot that is being filled, or never was


@dataclass(frozen=True)
class Use:
    """A copy into a slot (with its letter), or a computing step that reads it, in seconds."""

    slot: int
    begin: float
    end: float
    letter: str | None = None


class ClockDevice:
    """Link and device, each with its list of orders, and two slots. Nothing really waits: times are added up.

    Computing with a slot appends its letter to the text, or "?" where a copy was under way.
    """

    def __init__(self, copy_s: float, compute_s: float):
        self.copy_s, self.compute_s = copy_s, compute_s
        self._link = self._device = 0.0  # when the last order of each is done
        self._copies: list[Use] = []
        self._computes: list[Use] = []

    def copy(self, letter: str, slot: int) -> None:
        """Ask the link to fill `slot` with the weights `letter`."""
        self._check(slot)
        begin, self._link = self._link, self._link + self.copy_s
        self._copies.append(Use(slot, begin, self._link, letter))

    def compute(self, slot: int) -> None:
        """Ask the device to compute with what lies in `slot`."""
        self._check(slot)
        begin, self._device = self._device, self._device + self.compute_s
        self._computes.append(Use(slot, begin, self._device))

    def copied(self) -> float:
        """An event: every copy asked for so far is done."""
        return self._link

    def computed(self) -> float:
        """An event: every computing step asked for so far is done."""
        return self._device

    def copy_after(self, event: float) -> None:
        """Later copies start after `event`."""
        self._link = max(self._link, event)

    def compute_after(self, event: float) -> None:
        """Later computing starts after `event`."""
        self._device = max(self._device, event)

    @property
    def text(self) -> str:
        return "".join(map(self._read, self._computes))

    @property
    def seconds(self) -> float:
        """When the last computing step is done."""
        return max((use.end for use in self._computes), default=0.0)

    def _check(self, slot: int) -> None:
        if slot not in range(SLOTS):
            raise ValueError(f"there is no slot {slot}: there are {SLOTS}, counted from 0")

    def _read(self, use: Use) -> str:
        fills = [copy for copy in self._copies if copy.slot == use.slot and copy.begin < use.end]
        if not fills or fills[-1].end > use.begin:
            return UNKNOWN
        return fills[-1].letter


class BrokenEngine:
    """Sends the letters of `weights` through two slots, once a pass. It has two faults."""

    def __init__(self, device: ClockDevice, weights: str):
        self.device, self.weights = device, weights
        self.freed = {}

    def run_pass(self):
        self.freed.clear()
        for layer, letter in enumerate(self.weights):
            slot = layer % 2
            if slot in self.freed:
                self.device.copy_after(self.freed[slot])
            self.device.copy(letter, slot)
            self.device.compute_after(self.device.copied())
            self.freed[slot] = self.device.computed()
            self.device.compute(slot)


def run_engine(answer, weights, passes, copy_s, compute_s):
    """The device after some passes of an engine."""
    device = ClockDevice(copy_s, compute_s)
    engine = answer(device, weights)
    for _ in range(passes):
        engine.run_pass()
    return device


def try_engine(answer, weights, passes, copy_s, compute_s):
    """True, or what is not right about what the engine computes, or how long it takes."""
    device = run_engine(answer, weights, passes, copy_s, compute_s)
    best = run_engine(Engine, weights, passes, copy_s, compute_s)
    if device.text == best.text and device.seconds <= best.seconds:
        return True
    case = f"{passes} x {weights!r} with copies of {copy_s} s and computing of {compute_s} s"
    return (
        f"For {case} your engine says {device.text!r} after {device.seconds:g} s; "
        f"right and possible is {best.seconds:g} s."
    )


# ---- the repaired engine, and others ----


class Engine(BrokenEngine):
    """Right as it stands; each option makes one mistake."""

    forgets = early = deaf = False  # the pass before; the end of computing; the ready edge
    blind = False  # the free edge
    whole = False  # whether a copy waits for all computing, not for its slot's
    drains = False  # whether a pass begins with waiting for all computing
    crossed = False  # whether the event is kept for the other slot
    slots = 2

    def run_pass(self):
        if self.forgets:
            self.freed.clear()
        if self.drains:
            self.device.copy_after(self.device.computed())
        for layer, letter in enumerate(self.weights):
            self._layer(letter, layer % self.slots)

    def _layer(self, letter, slot):
        if self.whole:
            self.device.copy_after(self.device.computed())
        elif slot in self.freed and not self.blind:
            self.device.copy_after(self.freed[slot])
        self.device.copy(letter, slot)
        if not self.deaf:
            self.device.compute_after(self.device.copied())
        before = self.device.computed()
        self.device.compute(slot)
        self.freed[1 - slot if self.crossed else slot] = before if self.early else self.device.computed()


def engine(**options) -> type[Engine]:
    return type("Engine", (Engine,), options)


# ---- who used the slot before ----


def freed_by(number, streamed, slots):
    """(layer, passes ago) of the last use of the slot that streamed layer `number` goes into."""
    users = [layer for layer in range(streamed) if layer % slots == number % slots]
    earlier = [layer for layer in users if layer < number]
    return (earlier[-1], 0) if earlier else (users[-1], 1)


def in_a_circle(number, streamed, slots):
    return (number - slots) % streamed, int(number < slots)


def never_wraps(number, streamed, slots):
    return (number - slots, 0) if number >= slots else None


def same_pass(number, streamed, slots):
    return freed_by(number, streamed, slots)[0], 0


def as_bool(number, streamed, slots):
    layer, ago = freed_by(number, streamed, slots)
    return layer, bool(ago)


def the_layer_before(number, streamed, slots):
    return (number - 1, 0) if number else (streamed - 1, 1)


def wraps_to_the_last(number, streamed, slots):
    return (number - slots, 0) if number >= slots else (streamed - 1, 1)


def itself(number, streamed, slots):
    return (number - slots, 0) if number >= slots else (number, 1)


def the_next_user(number, streamed, slots):
    later = [layer for layer in range(number + 1, streamed) if layer % slots == number % slots]
    return (later[0], 0) if later else (number % slots, 1)


# ---- a detector of races ----

# A pass as two dictionaries: copies {layer: (slot, begin, end)}, computes {layer: (begin, end)}.


def races(copies, computes, *, ready=True, free=True, touching=False, twice=False, **others):
    """Layers whose computing began before their copy ended, or was overwritten; the options make mistakes."""
    found = []
    for layer, (begin, end) in computes.items():
        copied = copies[layer][2]
        early = begin <= copied if touching else begin < copied
        later = _overwriting(copies, layer, begin, **others)
        late = any(b <= end if touching else b < end for b in later)
        found += [layer] * (ready and early) + [layer] * (free and late)
    return sorted(found if twice else set(found))


def _overwriting(copies, layer, begin, *, slots=True, earlier=False, by_number=False, while_it_works=False):
    """When the copies begin that take the place of `layer`."""
    slot, own, _ = copies[layer]
    return [
        b
        for other, (s, b, e) in copies.items()
        if other != layer
        and (s == slot or not slots)
        and (earlier or (other > layer if by_number else b >= own))
        and (e > begin or not while_it_works)
    ]
