"""The runner of vLLM: arguments as on paper, a look at the offloader, a request timed by its own steps."""

import sys
from types import ModuleType, SimpleNamespace

import pytest
import torch
from transformers import AutoConfig, Qwen3ForCausalLM

from experiments.requests import Request
from minillm import presets
from tests.peers import vllm_arguments, vllm_dummies, vllm_generate

LARGE = presets.load("Qwen3-8B")
LAYER = 385_892_864  # bytes of one layer of it in bfloat16
ASKED = {"model": "random:Qwen3-8B", "mode": "resident", "resident": None, "step": None, "kv_tokens": 4608}

# ---- what it is told ----


def arguments(**asked):
    return vllm_arguments.engine_arguments(LARGE, ASKED | asked)


def test_the_cache_has_as_many_tokens_as_ours():
    found = arguments()
    assert (
        found["kv_cache_memory_bytes"] == 4608 * 2 * 36 * 8 * 128 * 2
    )  # keys and values, layers, heads, width
    assert found["max_model_len"] == 4608


def test_resident_is_all_of_its_defaults():
    assert not {"compilation_config", "enforce_eager", "cpu_offload_gb", "max_num_seqs"} & arguments().keys()


@pytest.mark.parametrize(
    ("resident", "group"), [(12, (3, 2)), (0, (1, 1)), (18, (2, 1)), (10, (18, 13)), (34, (18, 1))]
)
def test_streamed_layers_are_the_last_of_equal_groups(resident, group):
    found = arguments(mode="prefetch", resident=resident, step=2)
    size, streamed = found["offload_group_size"], found["offload_num_in_group"]
    assert (size, streamed) == group
    assert 36 // size * (size - streamed) == resident
    assert found["offload_prefetch_step"] == 2
    assert found["compilation_config"]["cudagraph_mode"] == "FULL"


def test_unified_memory_gets_exactly_the_streamed_layers():
    assert arguments(mode="uva", resident=12)["cpu_offload_gb"] * 2**30 == 24 * LAYER


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"mode": "prefetch", "resident": 13, "step": 2}, "step of 2 does not divide 23"),
        ({"mode": "prefetch", "resident": 36, "step": 2}, "nothing would stream"),
        ({"mode": "uva", "resident": -1}, "-1 of 36"),
    ],
)
def test_what_would_be_wrong_is_refused(asked, message):
    with pytest.raises(ValueError, match=message):
        arguments(**asked)


@pytest.mark.parametrize(
    ("mode", "runner"), [("resident", None), ("resident-process", None), ("prefetch", "0"), ("uva", "0")]
)
def test_the_runner_that_ignores_offloading_is_off_only_where_layers_stream(mode, runner):
    assert vllm_arguments.environment({"mode": mode}).get("VLLM_USE_V2_MODEL_RUNNER") == runner


def test_models_with_experts_are_refused():
    with pytest.raises(ValueError, match="dense"):
        vllm_arguments.engine_arguments(presets.load("Qwen3-30B-A3B"), ASKED)


@pytest.mark.parametrize("name", ["Qwen3-1.7B", "Qwen3-8B"])
def test_its_model_has_our_shapes(name, tmp_path):
    config = presets.load(name)
    found = vllm_arguments.config_json(config)
    (tmp_path / "config.json").write_text(vllm_generate.json.dumps(found))
    with torch.device("meta"):
        model = Qwen3ForCausalLM(AutoConfig.from_pretrained(tmp_path))
    assert {name: tuple(each.shape) for name, each in model.named_parameters()} == config.parameter_shapes()
    assert model.config.rope_parameters["rope_theta"] == config.rope.rope_theta
    assert model.config.dtype == torch.bfloat16


# ---- what it has to show ----


class NoopOffloader:
    pass


class UVAOffloader:
    uva_offloading = pin_memory = True
    cpu_offload_bytes = 24 * LAYER


class PrefetchOffloader:
    total_offloaded_bytes = 24 * LAYER
    buffer_pool = SimpleNamespace(total_bytes=2 * LAYER)
    group_size, num_in_group, prefetch_step = 3, 2, 2

    def __init__(self, layers=24, pinned=True):
        storage = SimpleNamespace(is_pinned=lambda: pinned)
        weight = SimpleNamespace(_cpu_storage=storage)
        self.module_offloaders = [SimpleNamespace(_param_offloaders={"w": weight}) for _ in range(layers)]


@pytest.mark.parametrize(
    ("offloader", "mode", "size"),
    [(NoopOffloader(), "resident", 0), (UVAOffloader(), "uva", 24), (PrefetchOffloader(), "prefetch", 24)],
)
def test_an_offloader_that_did_what_was_asked(offloader, mode, size):
    found = vllm_arguments.offloaded(offloader, LARGE, {"mode": mode, "resident": 12})
    assert (found["type"], found["bytes"]) == (type(offloader).__name__, size * LAYER)
    assert found.get("slot_bytes") in (None, 2 * LAYER)


def changed(offloader, **values):
    for name, value in values.items():
        setattr(offloader, name, value)
    return offloader


@pytest.mark.parametrize(
    ("offloader", "mode", "message"),
    [
        (NoopOffloader(), "prefetch", "NoopOffloader, not a PrefetchOffloader"),
        (changed(UVAOffloader(), uva_offloading=False), "uva", "UVA is off"),
        (changed(UVAOffloader(), cpu_offload_bytes=23 * LAYER), "uva", "expected"),
        (PrefetchOffloader(layers=23), "prefetch", "23 layers, not 24"),
        (PrefetchOffloader(pinned=False), "prefetch", "not in pinned memory"),
    ],
)
def test_an_offloader_that_did_something_else(offloader, mode, message):
    with pytest.raises(RuntimeError, match=message):
        vllm_arguments.offloaded(offloader, LARGE, {"mode": mode, "resident": 12})


# ---- a request, by an engine whose clock we hold ----

PREFILL_S, STEP_S = 0.5, 0.02


class Engine:
    """vLLM's engine as far as the runner uses it: the first step asks for a pass and returns nothing."""

    def __init__(self):
        self.now, self.steps, self.made = 0.0, 0, 0
        self.output_processor = SimpleNamespace(request_states={})
        scheduler = SimpleNamespace(max_num_seqs=1024)
        self.vllm_config = SimpleNamespace(use_v2_model_runner=True, scheduler_config=scheduler)

    def add_request(self, name, prompt, params):
        self.params, self.prompt, self.steps, self.made = params, prompt, 0, 0
        self.output_processor.request_states = {f"{name}-1": SimpleNamespace(is_prefilling=True)}
        return f"{name}-1"

    def has_unfinished_requests(self):
        return bool(self.output_processor.request_states)

    def step(self):
        self.steps += 1
        if self.steps == 1:
            return []
        self.now += STEP_S if self.made else PREFILL_S
        self.made += 1
        (state,) = self.output_processor.request_states.values()
        state.is_prefilling = False
        if self.made < self.params.max_tokens:
            return []
        self.output_processor.request_states = {}
        return [SimpleNamespace(outputs=[SimpleNamespace(token_ids=list(range(self.made)))])]


@pytest.fixture
def engine(monkeypatch):
    """A module `vllm` that makes it, and a GPU that is only counted."""
    made = Engine()
    inside = {
        "vllm": {"__version__": "0.24.0", "LLM": lambda **_: SimpleNamespace(llm_engine=made)},
        "vllm.inputs.engine": {"tokens_input": lambda ids: {"type": "token", "prompt_token_ids": ids}},
        "vllm.sampling_params": {"RequestOutputKind": SimpleNamespace(FINAL_ONLY="final")},
        "vllm.model_executor.offloader.base": {"get_offloader": NoopOffloader},
        "vllm.model_executor.model_loader": {"dummy_loader": SimpleNamespace()},
    }
    for name, values in inside.items():
        module = ModuleType(name)
        vars(module).update(values)
        monkeypatch.setitem(sys.modules, name, module)
    sys.modules["vllm"].SamplingParams = SimpleNamespace
    for name in ("synchronize", "reset_peak_memory_stats", "empty_cache"):
        monkeypatch.setattr(torch.cuda, name, lambda: None)
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda: 11)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda: 10)
    monkeypatch.setattr(torch.cuda, "max_memory_reserved", lambda: 12)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(vllm_generate, "time", SimpleNamespace(perf_counter=lambda: made.now))
    monkeypatch.setattr(vllm_generate.importlib.util, "find_spec", lambda name: "found")
    monkeypatch.setattr(vllm_generate.os, "environ", {})
    return made


@pytest.mark.parametrize("tokens", [1, 2, 9])
def test_first_token_and_decoding_are_of_one_request(engine, tokens):
    llm = SimpleNamespace(llm_engine=engine)
    answer = vllm_generate.answer(llm, Request("k", [5, 6], tokens), here=True)
    assert answer.ttft_s == pytest.approx(PREFILL_S)
    assert answer.total_s == pytest.approx(PREFILL_S + (tokens - 1) * STEP_S)
    assert (len(answer.token_ids), answer.peak_bytes, answer.reserved_bytes) == (tokens, 11, 12)
    assert engine.prompt["prompt_token_ids"] == [5, 6]
    assert (engine.params.ignore_eos, engine.params.temperature) == (True, 0.0)


def test_rows_come_one_after_the_other(engine):
    requests = [vars(Request(f"M/{number}", [1, 2], 3, question_id=number)) for number in range(2)]
    rows = vllm_generate.main(ASKED | {"requests": requests})
    loaded = next(rows)
    assert (loaded["key"], loaded["version"], loaded["kv_tokens"]) == ("loaded", "0.24.0", 4608)
    assert loaded["flags"]["VLLM_ENABLE_V1_MULTIPROCESSING"] == "0"
    assert "VLLM_USE_V2_MODEL_RUNNER" not in loaded["flags"]  # its default
    assert (loaded["v2_runner"], loaded["counts_bytes"]) == (True, 1024 * 4 * (151936 + 151936 // 32))
    assert loaded["RssShmem"] >= 0
    assert engine.steps == 0
    first, second = rows
    assert (first["key"], second["question_id"]) == ("M/0", 1)
    assert first["tokens_per_s"] == pytest.approx(1 / STEP_S)


def test_an_engine_in_its_own_process_keeps_its_memory_to_itself(engine, monkeypatch):
    for name in ("synchronize", "reset_peak_memory_stats", "max_memory_allocated", "empty_cache"):
        monkeypatch.setattr(torch.cuda, name, lambda: pytest.fail("this process must not touch the GPU"))
    requests = [vars(Request("M/0", [1, 2], 3))]
    loaded, row = vllm_generate.main(ASKED | {"mode": "resident-process", "requests": requests})
    assert loaded["flags"]["VLLM_ENABLE_V1_MULTIPROCESSING"] == "1"
    assert vllm_generate.os.environ["VLLM_WORKER_MULTIPROC_METHOD"] == "spawn"
    assert (row["peak_bytes"], row["tokens_per_s"]) == (None, pytest.approx(1 / STEP_S))
    assert arguments(mode="resident-process") == arguments()


@pytest.mark.parametrize(
    ("spec", "cuda", "model", "reason"),
    [
        (None, True, "random:Qwen3-8B", "vLLM is not installed"),
        ("found", False, "random:Qwen3-8B", "vLLM is measured on a GPU only"),
        ("found", True, "tiny", "published geometries"),
    ],
)
def test_what_is_missing_is_a_reason(monkeypatch, spec, cuda, model, reason):
    monkeypatch.setattr(vllm_generate.importlib.util, "find_spec", lambda name: spec)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: cuda)
    (row,) = vllm_generate.main(ASKED | {"model": model})
    assert list(row) == ["skipped"]
    assert reason in row["skipped"]


def test_dummy_weights_are_filled_once_and_the_same_each_time():
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Linear(4, 3, device="meta"))
    model.register_buffer("table", torch.full((5,), 9.0))
    model.register_buffer("numbers", torch.arange(3))
    model.register_buffer("passing", torch.full((2,), 9.0), persistent=False)
    before = model[0].weight.clone()
    vllm_dummies.fill(model, None)  # vLLM calls it for every module; this one owns the buffers alone
    assert torch.equal(model[0].weight, before)
    assert model.table.abs().max() <= 1e-3
    assert model.passing.tolist() == [9.0, 9.0]
    assert model.numbers.tolist() == [0, 1, 2]
    vllm_dummies.fill(model[0], None)
    weight = model[0].weight.clone()
    assert weight.unique().numel() > 6
    assert 0 < weight.abs().max() <= 1e-3
    vllm_dummies.fill(model[0], None)
    assert torch.equal(model[0].weight, weight)
