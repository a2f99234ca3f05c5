"""`LLM`: a model ready to answer. The entry point for programs; everything else is behind it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import torch

from minillm import device as devices
from minillm import memory
from minillm.accelerators import close_with
from minillm.accelerators.pick import pick as pick_accelerator
from minillm.budget import PLANNED_TOKENS, Decision
from minillm.checks import shown
from minillm.engine import Engine
from minillm.errors import InputError, RunError
from minillm.fast_path import describe, or_eagerly, say_why_not
from minillm.model_source import find_model
from minillm.options import check_options, check_placement
from minillm.outputs import RequestOutput, StreamChunk
from minillm.prompt_graph import with_room
from minillm.prompts import read_prompts
from minillm.quant.mix import quantised
from minillm.quant.stored import auto_dtype
from minillm.recorder import Recorder
from minillm.report import report
from minillm.requests import make_sequences
from minillm.residency import Residency
from minillm.sampling_params import SamplingParams
from minillm.sequence import Sequence
from minillm.turns import Turns
from minillm.weights import Fill


class LLM:
    """Load a model and generate.

    `model`: a folder with config.json and safetensors, a GGUF file, a hub id, "tiny" or another model that
    comes with minillm, "smollm2" once it was downloaded, or "random:Qwen3-8B".
    `device`: auto (CUDA if there is one), cpu, cuda, cuda:N. `dtype`: auto (as stored; of a packed GGUF file
    on the CPU float32), bfloat16, float16, float32. `max_model_len`: most tokens a request may store;
    default: the model's context. `seed`: of random weights, and of requests without a seed of their own.

    Offloading: all layers lie in host memory, those that do not stay on the device are copied to it for each
    token. `offload`: none; naive (copy, wait, compute); prefetch (copy while computing); auto: none if all
    fits, else prefetch. `gpu_layer_budget`: most layers on the device at any time; or `gpu_memory_gib`: as
    many as fit in so much memory; neither: as many as fit. `slots` (1 or 2) of the budget are what streamed
    layers pass through. On the CPU the device is emulated, with a link of `link_gb_s` (None: as fast as it
    goes). `quantize`: formats that the layers' matrices are stored, moved and read in, "int8", "int4",
    "fp8" or a mix like "attn=int8,mlp=int4" (`quant/mix.py`).

    `enforce_eager`: on CUDA no fused kernels and no graphs. (There cuDNN's attention is switched off for the
    whole process: it plans anew for every length.)

    Raises InputError (bad input) or RunError (it does not work here); each message names the value, the
    limit and the remedy. A context manager; `close` frees the weights. One thread at a time may run it;
    LLMs on one GPU take turns, a token each, and one that is loaded has a long one.
    """

    def __init__(
        self,
        model: str | Path,
        device: str = "auto",
        dtype: str = "auto",
        offload: str = "auto",
        gpu_layer_budget: int | None = None,
        slots: int | None = None,
        gpu_memory_gib: float | None = None,
        quantize: str | None = None,
        max_model_len: int | None = None,
        link_gb_s: float | None = None,
        seed: int = 0,
        enforce_eager: bool = False,
    ):
        check_options(locals())
        self.device = devices.pick(device)
        source = find_model(model)
        self.name, self.seed = source.name, int(seed)
        self.config = quantised(source.config, quantize)
        self.max_model_len = _model_len(max_model_len, self.config.context_length)
        on_cpu = self.device.type == "cpu"
        self.dtype = getattr(torch, auto_dtype(self.config, on_cpu) if dtype == "auto" else dtype)
        # Before anything else: a checkpoint that does not fit its configuration is told as that.
        fill = source.filler(seed, self.device)
        self.tokenizer = source.tokenizer()
        asked = {"offload": offload, "gpu_layer_budget": gpu_layer_budget, "gpu_memory_gib": gpu_memory_gib}
        planned = max_model_len or min(self.max_model_len, PLANNED_TOKENS)
        planned = planned if on_cpu else with_room(planned)
        self._engine: Engine | None = None
        self._peak: int | None = None  # of the latest run
        self._offload = offload  # as asked for last

        def load(enforce_eager: bool) -> None:
            self._accelerator = pick_accelerator(
                self.device, link_gb_s=link_gb_s, enforce_eager=enforce_eager, **asked
            )
            self._turns = Turns(self.name, self._accelerator.active)
            self._going = close_with(self, self._accelerator)
            with self._turns.take(), devices.explained_memory_errors(self._accelerator):
                self._load(planned, fill, slots=slots, **asked)

        or_eagerly(load, self.device, enforce_eager)
        say_why_not(self._accelerator, self.config, self.dtype)

    def _load(self, planned: int, fill: Fill, **asked) -> None:
        """Weights to their places; kernels compiled. `planned`: tokens that memory is planned for."""
        self.residency = Residency(self.name, self.config, self.dtype, self._accelerator, planned)
        try:
            self.model = self.residency.load(fill, **asked)
            self._engine = Engine(self.model, self.dtype, self._accelerator, planned)
            self._engine.warm_up(self.max_model_len)
        except BaseException:
            self.close()
            raise

    def place(
        self,
        gpu_layer_budget: int | None = None,
        slots: int | None = None,
        offload: str | None = None,
        gpu_memory_gib: float | None = None,
    ) -> None:
        """Move layers between host and device without loading anything anew; keywords as of `LLM`.

        `offload`: None is naive where that was asked for last and no slots are given, else "auto".

        Only for an LLM that keeps a host copy of every layer, which one does that was made with offloading.
        Raises as `LLM` does, and then everything stays where it is.
        """
        if offload is None:
            offload = "naive" if self._offload == "naive" and slots is None else "auto"
        asked = {"offload": offload, "gpu_layer_budget": gpu_layer_budget, "gpu_memory_gib": gpu_memory_gib}
        check_placement(asked | {"slots": slots})
        with self._turn():
            self._engine.forget()
            self.residency.move(slots=slots, **asked)
            self._offload = offload
            self._engine.warm_up(self.max_model_len)

    @property
    def decision(self) -> Decision:
        """Where the layers lie, and what memory and speed that was predicted to take and give."""
        return self.residency.decision

    @contextmanager
    def recording(self) -> Iterator[Recorder]:
        """Record when each step of the passes inside the context began and ended: `recorder.timeline`.

        Of an LLM with offloading; others record only the head. It costs some speed.
        """
        if self._accelerator.recorder is not None:
            raise RunError(f"this LLM ({self.name}) is being recorded already: end that recording() first")
        with self._turn():
            self.residency.restart()
        self._accelerator.recorder = recorder = Recorder(self._accelerator)
        try:
            yield recorder
        finally:
            self._accelerator.recorder = None

    # ---- generating ----

    def generate(
        self, prompts: str | list, params: SamplingParams | list[SamplingParams] | None = None
    ) -> list[RequestOutput]:
        """Answer one prompt (text used raw, or a list of ids) or a list of them, in input order.

        On Ctrl-C the KeyboardInterrupt carries `.outputs`, the answers so far.
        """
        sequences = self._sequences(prompts, params)
        try:
            for _ in self._run(sequences):
                pass
        except KeyboardInterrupt as interrupt:
            interrupt.outputs = self._outputs(sequences)
            raise
        return self._outputs(sequences)

    def stream(self, prompt: str | list[int], params: SamplingParams | None = None) -> Iterator[StreamChunk]:
        """Answer one prompt, yielding text and tokens as they come; the last chunk has `.output`."""
        sequences = self._sequences(prompt, params)
        if len(sequences) != 1:
            raise InputError(f"stream takes one prompt, not {len(sequences)}: use generate for several")
        return self._stream(sequences[0])

    def _stream(self, sequence: Sequence) -> Iterator[StreamChunk]:
        try:
            for _ in self._run([sequence]):
                output = self._outputs([sequence])[0] if sequence.finish_reason else None
                yield StreamChunk(sequence.delta, sequence.token_ids[-1:], output)
        except KeyboardInterrupt as interrupt:
            interrupt.outputs = self._outputs([sequence])
            raise

    def _run(self, sequences: list[Sequence]) -> Iterator[Sequence]:
        self._check_open()
        with devices.explained_memory_errors(self._accelerator):
            yield from self._turns.each(self._steps(sequences), self._check_open)

    def _steps(self, sequences: list[Sequence]) -> Iterator[Sequence]:
        """Begun inside the first turn: before it, another thread may run the LLM, or close it."""
        self._accelerator.reset_peak()
        yield from self._engine.run(sequences)

    def _sequences(self, prompts: str | list, params: SamplingParams | list | None) -> list[Sequence]:
        self._check_open()
        return make_sequences(
            prompts, params, self.config, self.max_model_len, tokenizer=self.tokenizer, seed=self.seed
        )

    def _outputs(self, sequences: list[Sequence]) -> list[RequestOutput]:
        self._peak = peak = self._accelerator.peak_bytes()
        return [sequence.output(peak) for sequence in sequences]

    # ---- everything else ----

    def chat_prompt(
        self, messages: list[dict], tools: list | None = None, add_generation_prompt: bool = True
    ) -> list[int]:
        """Token ids of a conversation under the model's chat template; InputError when it has none."""
        if self.tokenizer is None:
            raise InputError(f"{self.name} has no tokenizer, so no chat template: give token ids")
        return self.tokenizer.encode(self.tokenizer.chat(messages, tools, add_generation_prompt))

    def logits(self, token_ids: list[int]) -> torch.Tensor:
        """Teacher-forced logits of one prompt: float32 [T, vocab] on the CPU."""
        (ids,) = read_prompts([token_ids], self.tokenizer, self.config.vocab_size, self.max_model_len)
        needed = len(ids) * self.config.vocab_size * 4
        what = f"{len(ids)} × {self.config.vocab_size} logits"
        memory.check_fits(needed, memory.available_bytes(), what, "shorten the prompt")
        # Made outside inference mode, so that the caller may change it.
        logits = torch.empty(len(ids), self.config.vocab_size, device="cpu")
        with self._turn(), devices.explained_memory_errors(self._accelerator):
            self._engine.logits(ids, logits)
        return logits

    @property
    def graph_replays(self) -> int:
        """Steps of decoding that were replays of a CUDA graph.

        Others: the first of each width (1, 2, 4, …), recorded ones, a stream's once another run has begun.
        """
        self._check_open()
        return self._engine.graphs.replays if self._engine.graphs else 0

    @property
    def tokens_fed(self) -> int:
        """Tokens that went through the layers so far: a prompt's once, then one a step for each request."""
        self._check_open()
        return self.model.tokens_fed

    def report(self) -> str:
        """What lies where, as text."""
        self._check_open()
        return report(
            self.config,
            self.dtype.itemsize,
            self.max_model_len,
            self.decision,
            device=str(self.device),
            arena=self.residency.arena,
            path=describe(self._accelerator, self.config, self.dtype) if self.device.type == "cuda" else None,
            peak=self._peak,
        )

    def close(self) -> None:
        """Free the weights; the LLM cannot be used afterwards. Closing twice is harmless.

        An answer that is under way ends with a RunError for whoever wants more of it.
        """
        self.model = None
        self._accelerator.stop()
        with self._turns.take(wait=True):
            self._turns.end_all()
            if self._engine is not None:
                self._engine.forget()  # graphs, while nothing runs in them
            self._engine = None
            self.residency.close()
            self._going.detach()

    def __enter__(self) -> LLM:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def _turn(self) -> AbstractContextManager[None]:
        return self._turns.take(check=self._check_open)

    def _check_open(self) -> None:
        if self.model is None:
            raise RunError(f"this LLM ({self.name}) is closed: make a new one")


def _model_len(asked: int | None, context: int) -> int:
    if asked is not None and asked > context:
        raise InputError(f"max_model_len {shown(asked)} is beyond the model's context of {context} tokens")
    return asked or context
