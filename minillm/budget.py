"""From options to a decision: which layers stay on the device, which stream, and what memory it takes."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

from minillm import memory
from minillm.config import ModelConfig
from minillm.errors import InputError, RunError
from minillm.predict import Machine, decode
from minillm.schedule import Placement, place
from minillm.units import GIB, gib

CLEARLY = 1.02  # times as fast as with one slot is worth a second one
PLANNED_TOKENS = 4096  # that memory is planned for where max_model_len is not given; a context can be huge


@dataclass(frozen=True)
class Decision:
    """How a model will lie: `mode` "none" (all on the device), "naive" or "prefetch"."""

    mode: str
    placement: Placement
    device_bytes: int  # predicted peak: weights, slots, KV cache and workspace of the planned tokens
    tokens: int  # that it is planned for
    host_layers: tuple[int, ...] = ()  # that have a copy in host memory: all, unless that is too small
    tokens_per_s: float | None = None  # predicted for decoding, where the machine's rates were known
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Request:
    """What was asked for, and what there is."""

    config: ModelConfig
    dtype_bytes: int
    tokens: int  # that KV cache and workspace are planned for
    offload: str = "auto"
    gpu_layer_budget: int | None = None
    slots: int | None = None
    gpu_memory_gib: float | None = None
    free: int | None = None  # bytes of device memory; None: unknown, so not checked
    total: int | None = None  # bytes that the device has, likewise
    host_free: int | None = None  # bytes of host memory for copies of layers, likewise
    shared: bool = False  # whether the device's memory is the host's, as an emulated one's is
    scratch: int = 0  # bytes of device memory for expanding quantised weights
    table_on_host: bool = False  # whether an untied embedding stays there though nothing streams
    rates: Callable[[], Machine | None] = lambda: None  # asked where layers stream, for it can take a while

    @cached_property
    def plan(self) -> memory.MemoryPlan:
        return memory.plan(self.config, self.dtype_bytes, self.tokens)

    @property
    def layers(self) -> int:
        return self.config.num_hidden_layers

    @property
    def limit(self) -> int | None:
        """Bytes of device memory that may be used."""
        asked = None if self.gpu_memory_gib is None else int(self.gpu_memory_gib * GIB)
        return min((limit for limit in (asked, self.free) if limit is not None), default=None)

    @cached_property
    def machine(self) -> Machine | None:
        return self.rates()

    def placement(self, budget: int, slots: int = 1) -> Placement:
        return place(self.layers, budget, min(budget, self.slots or slots))

    def fits(self, placement: Placement) -> bool:
        return self.limit is None or device_bytes(self, placement) <= self.limit

    def host_holds(self, placement: Placement) -> bool:
        """Whether host memory holds copies of what streams."""
        return self.host_free is None or host_bytes(self, placement, placement.streamed) <= self.host_free


def decide(request: Request) -> Decision:
    """Follow the options, or choose where they leave a choice.

    Raises InputError for options that contradict each other, RunError when not even one layer fits.
    """
    _check(request)
    mode, budget = request.offload, request.gpu_layer_budget
    everything = request.placement(request.layers)
    if mode == "none" or (mode == "auto" and budget is None and request.fits(everything)):
        return _decision(request, "none", request.layers)
    budget = budget or _largest(request)
    _check_weights(request, min(budget, request.layers))
    if budget >= request.layers:
        note = f"all {request.layers} layers fit the budget: nothing streams, offloading changes nothing"
        return _decision(request, "none", request.layers, note)
    return _decision(request, "prefetch" if mode == "auto" else mode, budget)


def device_bytes(request: Request, placement: Placement) -> int:
    """Device memory at its peak: the weights that lie there, KV cache and workspace of the planned tokens."""
    plan = request.plan
    sizes = [a + m for a, m in zip(plan.attention_blocks, plan.mlp_blocks, strict=True)]
    slot = slot_bytes(plan, placement)
    # Without streaming the embedding is on the device, too. A tied one always is: it serves as the head.
    table = 0 if plan.head and (placement.streamed or request.table_on_host) else plan.embedding
    weights = sum(sizes[index] for index in placement.resident) + placement.slots * slot
    return weights + table + plan.head + plan.norm + plan.kv + plan.workspace + request.scratch


def _check_weights(request: Request, budget: int) -> None:
    """Raise RunError where the weights alone take more than there is; a shorter context would not help."""
    with_copies = request.shared and request.host_free is not None  # `_host_layers` counts both together
    if with_copies or request.limit is None or weight_bytes(request, budget) <= request.limit:
        return
    smaller = range(request.slots or 1, budget)
    most = max((n for n in smaller if weight_bytes(request, n) <= request.limit), default=0)
    planned = max((n for n in smaller if request.fits(request.placement(n))), default=0)
    raise RunError(
        f"{budget} of {request.layers} layers take {gib(weight_bytes(request, budget))} of device memory "
        f"with what is always there, and {gib(request.limit)} may be used: at most {most} fit, and "
        f"{planned} beside {request.tokens} tokens"
    )


def weight_bytes(request: Request, budget: int) -> int:
    """Device memory that is taken before any prompt comes."""
    return device_bytes(request, request.placement(budget)) - request.plan.kv - request.plan.workspace


def slot_bytes(plan: memory.MemoryPlan, placement: Placement) -> int:
    """Of one slot: the largest streamed block of each part has its place there."""
    parts = plan.attention_blocks, plan.mlp_blocks
    return sum(max((blocks[index] for index in placement.streamed), default=0) for blocks in parts)


def _decision(request: Request, mode: str, budget: int, *notes: str) -> Decision:
    if budget >= request.layers:
        placement = request.placement(budget)
        return Decision(mode, placement, device_bytes(request, placement), request.tokens, notes=notes)
    _check_host(request, request.placement(budget))  # before anything is measured
    placement, speed = _best_slots(request, mode, budget)
    if request.slots and placement.slots < request.slots:
        notes += (f"{request.slots} slots are one too many for 3 streamed layers: one is taken",)
    host_layers = _host_layers(request, placement)
    if len(host_layers) < request.layers:
        notes += ("host memory holds the streamed layers only: another budget needs loading anew",)
    needed = device_bytes(request, placement)
    return Decision(mode, placement, needed, request.tokens, host_layers, speed, notes)


def _best_slots(request: Request, mode: str, budget: int) -> tuple[Placement, float | None]:
    """The placement with the number of slots that the simulator finds faster, and its tokens a second."""
    placements = [request.placement(budget)]
    if mode == "prefetch" and request.slots is None and request.machine and budget > 1:
        other = request.placement(budget, slots=2)  # a layer more streams
        if request.fits(other) and request.host_holds(other):
            placements.append(other)
    if request.machine is None:
        return placements[0], None
    speeds = [
        decode(request.config, request.dtype_bytes, mode, each, request.machine).tokens_per_s
        for each in placements
    ]
    best = int(speeds[-1] > CLEARLY * speeds[0])  # rates are measured, and one slot has a layer more resident
    return placements[best], speeds[best]


def _check_host(request: Request, placement: Placement) -> None:
    """Raise RunError where host memory does not hold copies of what streams."""
    smaller = "choose a smaller model or dtype"
    what, remedy = "the host copy of the streamed layers", f"{smaller}, or a larger budget"
    if request.shared:
        device = device_bytes(request, placement)
        what, remedy = f"{what} beside {gib(device)} of emulated device", f"lower max_model_len or {smaller}"
    memory.check_fits(host_bytes(request, placement, placement.streamed), request.host_free, what, remedy)


def _host_layers(request: Request, placement: Placement) -> tuple[int, ...]:
    """Layers with a host copy: all if there is room, so that the budget can be changed, else what streams."""
    every = tuple(range(request.layers))
    room = request.host_free is None or host_bytes(request, placement, every) <= request.host_free
    return every if room else placement.streamed


def host_bytes(request: Request, placement: Placement, layers: tuple[int, ...]) -> int:
    """Host memory with copies of `layers`: with a table that stays there, and an emulated device's own."""
    plan = request.plan
    device = device_bytes(request, placement) if request.shared else 0
    table = plan.embedding if plan.head else 0
    return device + table + sum(plan.attention_blocks[index] + plan.mlp_blocks[index] for index in layers)


def _check(request: Request) -> None:
    budget, slots, mode = request.gpu_layer_budget, request.slots, request.offload
    if budget is not None and request.gpu_memory_gib is not None:
        raise InputError("gpu_layer_budget and gpu_memory_gib say one thing in two ways: give one of them")
    asked = request.gpu_memory_gib
    if asked is not None and mode == "none":
        raise InputError(f"gpu_memory_gib is {float(asked):g}, but offload is none: drop one")
    if asked is not None and request.total is not None and int(asked * GIB) > request.total:
        raise InputError(
            f"gpu_memory_gib is {float(asked):g}, but the device has {gib(request.total)}: at most that"
        )
    if budget is not None and budget < request.layers and mode == "none":
        raise InputError(
            f"gpu_layer_budget {budget} of {request.layers} layers, but offload is none: drop one"
        )
    check_slots(slots, budget, mode)


def check_slots(slots: int | None, budget: int | None, mode: str) -> None:
    """Raise InputError where a mode has no slots to choose, or more are asked for than the budget has."""
    if slots is not None and mode in ("none", "naive"):
        raise InputError(f"slots is {slots}, but offload {mode} has no slots to choose: leave it out")
    if budget is not None and slots is not None and slots > budget:
        raise InputError(
            f"slots is {slots} in a gpu_layer_budget of {budget}: slots count, so at most {budget}"
        )


def _largest(request: Request) -> int:
    """The most layers that fit; RunError when not one does, with what is in the way."""
    least = request.slots or 1
    budgets = range(least, request.layers + 1)
    fitting = [budget for budget in budgets if request.fits(request.placement(budget))]
    if fitting:
        return max(fitting)
    plan, needed = request.plan, device_bytes(request, request.placement(least))
    tokens = _most_tokens(request, request.placement(least))
    remedy = f"set max_model_len to {tokens} or less" if tokens > 0 else f"it takes {gib(needed)}"
    raise RunError(
        f"not one layer fits {gib(request.limit)} of device memory beside the head, {gib(plan.kv)} of KV "
        f"cache and {gib(plan.workspace)} of workspace for {request.tokens} tokens: {remedy}"
    )


def _most_tokens(request: Request, placement: Placement) -> int:
    """The longest context with which `placement` fits, 0 if none; by halving, for sizes are not linear."""
    fitting, too_many = 0, request.tokens
    while too_many - fitting > 1:
        middle = (fitting + too_many) // 2
        if replace(request, tokens=middle).fits(placement):
            fitting = middle
        else:
            too_many = middle
    return fitting
