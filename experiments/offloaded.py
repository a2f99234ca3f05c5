"""An LLM that streams, placed anew for each row of an experiment, and the figures that such a row holds."""

import argparse
import hashlib
import time
from collections.abc import Callable
from itertools import pairwise
from typing import TypeVar

import torch

from experiments.requests import UNCOUNTED
from minillm import LLM, ModelConfig, SamplingParams, memory, schedule
from minillm.block_times import BlockTimes
from minillm.hardware import PUBLISHED, USABLE
from minillm.outputs import RequestOutput
from minillm.predict import Rates, decode
from minillm.schedule import Placement
from minillm.units import GB

Made = TypeVar("Made")
CARD = PUBLISHED["rtx3070"]  # the course's
WARM_TOKENS = 3  # of a generation that is not measured: libraries start, slots fill

# ---- figures of a placement, from geometry alone ----


def streamed_bytes(config: ModelConfig, dtype_bytes: int, placement: Placement) -> int:
    """Bytes that the copies of one pass come to."""
    blocks = (copy.block for copy in schedule.naive(placement).copies)
    return sum(memory.block_bytes(config, block.layer, block.part, dtype_bytes) for block in blocks)


def limit(config: ModelConfig, dtype_bytes: int, budget: int, link_gb_s: float) -> float | None:
    """Tokens a second that the link allows with the best slots. None: nothing is copied."""
    layers = config.num_hidden_layers
    choices = [schedule.place(layers, budget, slots) for slots in (1, 2) if slots <= budget]
    fewest = min(streamed_bytes(config, dtype_bytes, placement) for placement in choices)
    return link_gb_s * GB / fewest if fewest else None


def on_card(
    config: ModelConfig, dtype_bytes: int, mode: str, placement: Placement, peak: int
) -> float | None:
    """Predicted tokens a second of the course's card; None where `peak` bytes are more than it has."""
    if peak > USABLE * CARD.gpu_memory_bytes:
        return None
    rates = Rates(CARD.link_gb_s, CARD.gpu_gb_s)
    return decode(config, dtype_bytes, mode, placement, rates).tokens_per_s


# ---- measuring ----


class Offloaded:
    """An LLM that streams, placed anew for each row. A context manager.

    `link_gb_s`: measured before, for the limits. `tokens`: most of a prompt and its answer.
    """

    def __init__(self, options: argparse.Namespace, tokens: int, link_gb_s: float, **placement):
        self.options, self.link_gb_s = options, link_gb_s
        self.taken = torch.cuda.memory_allocated() if options.device == "cuda" else 0  # by libraries
        began = time.perf_counter()
        same = {"device": options.device, "dtype": options.dtype, "link_gb_s": options.link_gb_s}
        self.llm = LLM(options.model, **same, max_model_len=tokens, **placement)
        self.load_s = time.perf_counter() - began
        self.config, self.dtype_bytes = self.llm.config, self.llm.dtype.itemsize

    def __enter__(self) -> "Offloaded":
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.llm.close()

    def place(self, mode: str, budget: int, slots: int | None = None) -> None:
        """Another placement of the same model; RunError where it does not fit."""
        offload = "prefetch" if mode == "resident" else mode
        self.llm.place(gpu_layer_budget=budget, slots=slots, offload=offload)

    def loaded(self) -> dict:
        """Bytes of host memory: what had to be locked, and what is; None where nothing locks."""
        plan, arena = memory.plan(self.config, self.dtype_bytes, 1), self.llm.residency.arena
        blocks = (plan.attention_blocks[i] + plan.mlp_blocks[i] for i in self.llm.decision.host_layers)
        return {
            "load_s": self.load_s,
            "asked_bytes": sum(blocks) + (plan.embedding if plan.head else 0) if arena else 0,
            "locked_bytes": arena.pinned_bytes or None if arena else None,
            "report": self.llm.report(),
        }

    def placed(self, mode: str) -> dict:
        """Where the layers lie now, and what that allows."""
        placement = self.llm.decision.placement
        size, peak = self.dtype_bytes, self.llm.decision.device_bytes
        return {
            "mode": mode,
            "budget": placement.on_device,
            "resident": len(placement.resident),
            "streamed": len(placement.streamed),
            "slots": placement.slots,
            "streamed_bytes": streamed_bytes(self.config, size, placement),
            "link_gb_s": self.link_gb_s,
            "limit_tokens_per_s": limit(self.config, size, placement.on_device, self.link_gb_s),
            "rtx3070_tokens_per_s": on_card(self.config, size, mode, placement, peak),
        }

    def simulated(self, mode: str, times: BlockTimes) -> float:
        """Tokens a second that the simulator gives for this placement."""
        placement = self.llm.decision.placement
        return decode(self.config, self.dtype_bytes, mode, placement, times).tokens_per_s

    def predicted_peak(self, tokens: int) -> int:
        """Bytes of device memory for a request of so many tokens in all, not for the longest planned one.

        Where decoding is by graphs the cache has room for the longest one anyway.
        """
        planned, needed = (
            memory.plan(self.config, self.dtype_bytes, count) for count in (self.llm.max_model_len, tokens)
        )
        spared = planned.workspace - needed.workspace
        if self.llm._engine.graphs is None:
            spared += planned.kv - needed.kv
        return self.llm.decision.device_bytes - spared

    def warm(self, prompt: list[int]) -> None:
        """Generations that are not measured; afterwards the slots hold what the next pass starts with."""
        streaming = self.llm.decision.placement.streamed  # prompts are not captured then
        for _ in range(1 if streaming else UNCOUNTED):
            self.llm.generate(prompt, SamplingParams(max_tokens=WARM_TOKENS, ignore_eos=True))

    def run(self, prompt: list[int], tokens: int) -> dict:
        """Times and memory of one generation; RuntimeError unless each pass copied what the schedule says."""
        (output, times), copied = self.counted(tokens, lambda: self._stream(prompt, tokens))
        metrics = output.metrics
        return {
            "prompt_tokens": len(prompt),
            "new_tokens": metrics.num_generated,
            "ttft_s": metrics.ttft_s,
            "tokens_per_s": metrics.decode_tokens_per_s,
            "token_s": [round(b - a, 6) for a, b in pairwise(times)],
            "peak_bytes": metrics.peak_memory_bytes - self.taken,
            "held_bytes": metrics.peak_memory_bytes,  # libraries included
            "predicted_peak_bytes": self.predicted_peak(len(prompt) + tokens),
            "copied_bytes_a_pass": copied,
            "answer": hashlib.sha256(str(output.token_ids).encode()).hexdigest()[:16],
        }

    def counted(self, passes: int, action: Callable[[], Made]) -> tuple[Made, int]:
        """What `action` returns after so many passes, and the bytes that each copied.

        RuntimeError unless they are the schedule's.
        """
        store, before = self._settled()
        made = action()
        return made, self._a_pass(self._copied(store) - before, passes)

    def _stream(self, prompt: list[int], tokens: int) -> tuple[RequestOutput, list[float]]:
        """An answer, and when it began and each of its tokens was there."""
        times = [time.perf_counter()]
        for chunk in self.llm.stream(prompt, SamplingParams(max_tokens=tokens, ignore_eos=True)):
            times.append(time.perf_counter())
            output = chunk.output
        return output, times

    def _settled(self) -> tuple[object, int]:
        """The store, and what it has copied, when nothing is under way."""
        self.llm._accelerator.synchronize()
        store = self.llm.model.model.layers
        return store, self._copied(store)

    def _copied(self, store: object) -> int:
        return getattr(store, "bytes_copied", 0)  # where all layers fit, nothing counts

    def _a_pass(self, copied: int, passes: int) -> int:
        expected = streamed_bytes(self.config, self.dtype_bytes, self.llm.decision.placement)
        if copied != passes * expected:
            raise RuntimeError(
                f"{copied} bytes were copied in {passes} passes, {expected} a pass are scheduled"
            )
        return copied // passes
