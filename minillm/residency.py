"""Where a model's weights lie: decided, brought there, moved, and given back in the right order."""

import sys
from dataclasses import replace

import torch

from minillm import device as devices
from minillm import memory
from minillm.accelerators import Accelerator
from minillm.accelerators.cpu import Cpu
from minillm.arena import HostArena
from minillm.block_times import BlockTimes, measure
from minillm.budget import Decision, Request, decide
from minillm.config import ModelConfig
from minillm.errors import RunError
from minillm.fast_path import scratch_bytes
from minillm.model import Qwen3
from minillm.offload import OffloadedLayers, make_store
from minillm.weights import Fill, build, build_offloaded, shorten_lookups

LOWER = "a lower gpu_layer_budget, a shorter max_model_len or a smaller model"  # where weights do not fit


class Residency:
    """Holds the weights of one model; `load` once, `move` as often as wanted, `close`."""

    def __init__(
        self, name: str, config: ModelConfig, dtype: torch.dtype, accelerator: Accelerator, tokens: int
    ):
        """`tokens`: that KV cache and workspace are planned for."""
        self.name, self.config, self.dtype, self.tokens = name, config, dtype, tokens
        self.accelerator = accelerator
        self.shared = accelerator.device.type == "cpu"  # an emulated device has its memory from the host
        self.decision: Decision | None = None
        self.model: Qwen3 | None = None
        self.arena: HostArena | None = None  # of the host copies, where anything is offloaded
        self._block_times: BlockTimes | None = None

    def load(self, fill: Fill, **asked) -> Qwen3:
        """The model with its weights, placed as `asked`: offload, gpu_layer_budget, slots, gpu_memory_gib."""
        self.decision = decision = self._decide(host_free=memory.available_bytes(), **asked)
        with devices.explained_memory_errors(self.accelerator, LOWER):
            if decision.mode == "none":
                self._check_resident()
                device = self.accelerator.device
                self.model = build(self.config, self.dtype, device, fill, self.accelerator)
            else:
                self.model, self.arena = build_offloaded(
                    self.config, self.dtype, decision, self.accelerator, fill
                )
        return self.model

    def move(self, **asked) -> None:
        """Another placement of the same weights; if it fails they stay where they are."""
        self._check_movable()
        before, store, outside = self.decision, self.model.model.layers, sys.exception()
        plan = memory.plan(self.config, self.dtype.itemsize, self.tokens)
        held = sum(map(len, store.held)) + plan.norm + (plan.head or plan.embedding)
        decision = replace(self._decide(held=held, **asked), host_layers=self.decision.host_layers)
        try:
            store.release()
            self._put(store, decision)
        except BaseException as error:
            devices.let_go(error, outside)  # its frames hold memory that the way back needs
            self.model.model.layers.release()  # whichever store is there by now, if it was cut short
            self._put(store, before)
            raise

    def restart(self) -> None:
        """Let the next pass begin with nothing on its way."""
        if self.arena is not None:
            self.model.model.layers.restart()

    def close(self) -> None:
        """Give everything back. Closing twice is harmless."""
        self.model = None
        self.accelerator.close()  # waits for copies that are under way: they read the arena
        if self.arena is not None:
            self.arena.close()
            self.arena = None

    def _put(self, store: OffloadedLayers, decision: Decision) -> None:
        with devices.explained_memory_errors(self.accelerator, LOWER):
            self.model.model.layers = make_store(store, decision, self.accelerator, self.dtype)
        shorten_lookups(self.model)
        self.decision = decision

    def _decide(self, held: int = 0, host_free: int | None = None, **asked) -> Decision:
        """Follow the options; says on stderr what cannot help. `held`: device bytes of the model itself."""
        both = self.accelerator.free_bytes(), memory.available_bytes() if self.shared else None
        free = min((each for each in both if each is not None), default=None)
        if isinstance(self.accelerator, Cpu):
            asked["offload"] = "none"  # there is nowhere to offload to
        request = Request(
            config=self.config,
            dtype_bytes=self.dtype.itemsize,
            tokens=self.tokens,
            free=None if free is None else max(0, free + held - self.accelerator.unplanned),
            total=self.accelerator.total_bytes(),
            host_free=host_free,
            shared=self.shared,
            scratch=scratch_bytes(self.accelerator, self.config, self.dtype),
            table_on_host=held > 0,
            rates=self._rates,
            **asked,
        )
        decision = decide(request)
        for note in decision.notes:
            print(f"note: {note}", file=sys.stderr)
        return decision

    def _rates(self) -> BlockTimes | None:
        """What a block costs here, measured once; None where there is no memory to find out."""
        if self._block_times is None:
            try:
                self._block_times = measure(self.config, self.dtype, self.accelerator)
            except RunError:
                return None
            self.accelerator.trim()
        return self._block_times

    def _check_movable(self) -> None:
        layers, copies = self.config.num_hidden_layers, len(self.decision.host_layers)
        if copies == 0:
            remedy = f"make it with a gpu_layer_budget below {layers}"
            raise RunError(f"this LLM has all layers on the device and keeps no host copy: {remedy}")
        if copies < layers:
            raise RunError(
                f"this LLM keeps a host copy of {copies} of {layers} layers only, for lack of host "
                "memory: make another one with the placement that you want"
            )

    def _check_resident(self) -> None:
        """Asked beforehand: Linux grants memory that it does not have and kills the process that uses it."""
        weights = memory.plan(self.config, self.dtype.itemsize, self.tokens).weights
        where = f"{self.name} on {self.accelerator.device}"
        remedy = "choose a smaller model or dtype"
        if not self.shared:
            remedy = f"leave offload out, so that layers stream, or {remedy}"
        memory.check_fits(weights, self.accelerator.free_bytes(), where, remedy)
