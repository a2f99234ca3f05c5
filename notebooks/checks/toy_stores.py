"""Stores on toy layers, right and wrong, for notebook 08; and what is tried with them."""

from collections.abc import Callable, Generator
from contextlib import contextmanager

PARTS = ("attention", "mlp")


class Stop(KeyboardInterrupt):
    """What Ctrl-C raises, in a form that only these trials raise."""


class ToyStore:
    """`layers` layers; those in `resident` are on the device, and there is room for one more."""

    def __init__(self, layers: int, resident: set[int] = frozenset()):
        self.layers, self.resident = layers, set(resident)
        self.there: set[int] = set(self.resident)
        self.brought = 0

    def bring(self, index: int) -> None:
        """Take room, copy, wait."""
        if index in self.there:
            raise RuntimeError(f"layer {index} is brought, but it is on the device already")
        if len(self.there) > len(self.resident):
            visitor = min(self.there - self.resident)
            raise RuntimeError(f"not enough memory for layer {index}: layer {visitor} is still there")
        self.there.add(index)
        self.brought += 1

    def dismiss(self, index: int) -> None:
        """Free."""
        if index not in self.there:
            raise RuntimeError(f"layer {index} is dismissed, but it is not on the device")
        self.there.remove(index)

    def block(self, index: int, part: str) -> Callable[[], str]:
        """The block: a function that works if its layer is there when it is called."""

        def compute() -> str:
            if index not in self.there:
                raise RuntimeError(f"{part} of layer {index} is computed, but the layer is not on the device")
            return f"{part} {index}"

        return compute


# ---- what is tried ----

NOT_DECORATED = "`with` cannot enter a generator: `@contextmanager` is missing above `def use`."
NO_MANAGER = (
    "`with` cannot enter what `use` returns: it needs `@contextmanager` above it, and `yield` for the block."
)
NO_YIELD = (
    "A context manager gives its block with `yield`. After `return`, nothing could happen any more when the "
    "caller leaves the `with`."
)


def _never_enters(store: ToyStore) -> str:
    """Why `with` cannot enter what `use` gives, in words; empty if it can."""
    given = store.use(0, "attention")
    if isinstance(given, Generator):
        return NOT_DECORATED
    if not hasattr(given, "__enter__"):
        return NO_MANAGER
    if not isinstance(getattr(given, "gen", None), Generator | None):  # of what contextmanager makes
        return NO_YIELD
    return ""


def two_passes(answer: type, layers: int, resident: set[int]) -> str | None:
    """The first thing that goes wrong in two passes, or "right"."""
    if fault := _never_enters(answer(layers, resident)):
        return fault
    store = answer(layers, resident)
    for number in (1, 2):
        fault = _pass(store)
        if fault:
            return f"Pass {number}: {fault}."
        if store.there != store.resident:
            return f"After pass {number} these layers are on the device: {sorted(store.there)}."
    if store.brought != 2 * (layers - len(resident)):
        return f"{store.brought} layers were brought in two passes, not {2 * (layers - len(resident))}."
    return "right"


def broken_off(answer: type, layers: int, index: int, part: str) -> str | None:
    """A pass that Ctrl-C ends in one block, then a whole one: what goes wrong, or "right"."""
    if fault := _never_enters(answer(layers)):
        return fault
    for stop in (ValueError, Stop):
        store, name = answer(layers), "Ctrl-C" if stop is Stop else "An error"
        fault = _stopped(store, (index, part), stop)
        if fault:
            return f"{name} in {part} of layer {index}: {fault}."
        fault = _pass(store)
        if fault:
            return f"{name} in {part} of layer {index}, and in the next pass: {fault}."
        if store.there:
            return f"After the next pass these layers are on the device: {sorted(store.there)}."
    return "right"


def _stopped(store: ToyStore, last: tuple, stop: type) -> str:
    """A pass that `stop` ends in block `last`: what went wrong, empty if the caller got `stop`."""
    try:
        return _pass(store, last, stop) or "it never reached the caller"
    except stop:
        return ""


def _pass(store: ToyStore, last: tuple | None = None, stop: type = Stop) -> str:
    """One pass; `stop` is raised inside block `last`. What went wrong, in words; empty if nothing."""
    for index in range(store.layers):
        for part in PARTS:
            try:
                with store.use(index, part) as block:
                    if not callable(block):
                        return f"use({index}, {part!r}) gave {block!r}, which is no block"
                    given = block()
                    if (index, part) == last:
                        raise stop
            except NotImplementedError:  # a blank exercise; it is a RuntimeError, too
                raise
            except RuntimeError as error:
                return str(error)
            if given != f"{part} {index}":
                return f"use({index}, {part!r}) gave another block: {given}"
    return ""


# ---- some layers stay: the solution and wrong ones ----


class SomeStay(ToyStore):
    @contextmanager
    def use(self, index, part):
        visits = index not in self.resident
        if visits and part == "attention":
            self.bring(index)
        yield self.block(index, part)
        if visits and part == "mlp":
            self.dismiss(index)


class BringsAll(ToyStore):
    @contextmanager
    def use(self, index, part):
        if part == "attention":
            self.bring(index)
        yield self.block(index, part)
        if part == "mlp":
            self.dismiss(index)


class DismissesAll(ToyStore):
    @contextmanager
    def use(self, index, part):
        if part == "attention" and index not in self.resident:
            self.bring(index)
        yield self.block(index, part)
        if part == "mlp":
            self.dismiss(index)


class LeavesEarly(ToyStore):
    @contextmanager
    def use(self, index, part):
        visits = index not in self.resident
        if visits and part == "attention":
            self.bring(index)
        yield self.block(index, part)
        if visits:
            self.dismiss(index)


class BringsTwice(ToyStore):
    @contextmanager
    def use(self, index, part):
        visits = index not in self.resident
        if visits:
            self.bring(index)
        yield self.block(index, part)
        if visits:
            self.dismiss(index)


class NeverLeaves(ToyStore):
    @contextmanager
    def use(self, index, part):
        if index not in self.resident and part == "attention":
            self.bring(index)
        yield self.block(index, part)


class BringsLate(ToyStore):
    @contextmanager
    def use(self, index, part):
        yield self.block(index, part)
        if index not in self.resident:
            self.bring(index) if part == "attention" else self.dismiss(index)


class Reversed(ToyStore):
    @contextmanager
    def use(self, index, part):
        visits = index in self.resident
        if visits and part == "attention":
            self.bring(index)
        yield self.block(index, part)
        if visits and part == "mlp":
            self.dismiss(index)


class Undecorated(SomeStay):
    def use(self, index, part):
        yield self.block(index, part)


class Returns(SomeStay):
    @contextmanager
    def use(self, index, part):
        return self.block(index, part)


class NoManager(SomeStay):
    def use(self, index, part):
        return self.block(index, part)


class Computes(SomeStay):
    @contextmanager
    def use(self, index, part):
        visits = index not in self.resident
        if visits and part == "attention":
            self.bring(index)
        yield self.block(index, part)()


# ---- after an error: the solution and wrong ones ----


class Leaky(BringsAll):
    pass


class Guarded(ToyStore):
    @contextmanager
    def use(self, index, part):
        if part == "attention":
            self.bring(index)
        try:
            yield self.block(index, part)
        except BaseException:
            self.dismiss(index)
            raise
        if part == "mlp":
            self.dismiss(index)


class FinallyAlways(ToyStore):
    @contextmanager
    def use(self, index, part):
        if part == "attention":
            self.bring(index)
        try:
            yield self.block(index, part)
        finally:
            self.dismiss(index)


class FinallyMlp(ToyStore):
    @contextmanager
    def use(self, index, part):
        if part == "attention":
            self.bring(index)
        try:
            yield self.block(index, part)
        finally:
            if part == "mlp":
                self.dismiss(index)


class Swallows(ToyStore):
    @contextmanager
    def use(self, index, part):
        if part == "attention":
            self.bring(index)
        try:
            yield self.block(index, part)
        except BaseException:
            self.dismiss(index)
            return
        if part == "mlp":
            self.dismiss(index)


class ExceptionsOnly(ToyStore):
    @contextmanager
    def use(self, index, part):
        if part == "attention":
            self.bring(index)
        try:
            yield self.block(index, part)
        except Exception:
            self.dismiss(index)
            raise
        if part == "mlp":
            self.dismiss(index)


class CatchesOnly(ToyStore):
    @contextmanager
    def use(self, index, part):
        if part == "attention":
            self.bring(index)
        try:
            yield self.block(index, part)
        except BaseException:
            return
        if part == "mlp":
            self.dismiss(index)
