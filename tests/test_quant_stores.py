"""Quantised layers behind every store: the same logits bit for bit, and no byte moved but the packed ones."""

import gc
import subprocess
import sys
import weakref

import pytest
import torch
from command_line import fails, succeeds

from experiments.skill_accuracy import our_answers
from minillm import LLM, memory
from minillm.errors import InputError
from minillm.geometry import PARTS
from minillm.quant import codec
from minillm.units import gib
from training.skills import held_out

PROMPT = "Q: 417 + 388 = ?\nA:"
MIXES = [
    "int8",
    "int4",
    "int4-sym",
    "fp8",
    "attn=int8,mlp=int4",
    "int4,layers.0-2=int8,layers.5=none,layers.6.attn=fp8",
]
PLACEMENTS = [
    {"offload": "prefetch", "gpu_layer_budget": 1},
    {"offload": "prefetch", "gpu_layer_budget": 3, "slots": 1},
    {"offload": "prefetch", "gpu_layer_budget": 3, "slots": 2},
    {"offload": "prefetch", "gpu_layer_budget": 7, "slots": 2},
    {"offload": "naive", "gpu_layer_budget": 1},
    {"offload": "naive", "gpu_layer_budget": 6},
]


def open_model(name: str, mix: str | None, **options) -> LLM:
    return LLM(name, **{"device": "cpu", "dtype": "float32", "quantize": mix, "max_model_len": 256} | options)


def check_placements(name: str, mix: str, placements: list[dict]) -> None:
    """Logits of a prompt, and those after it was answered, in every placement those of the resident model."""
    with open_model(name, mix) as llm:
        ids = llm.tokenizer.encode(PROMPT)
        logits, answer = llm.logits(ids), llm.generate(ids)[0].token_ids
    for options in placements:
        with open_model(name, mix, **options) as llm:
            assert torch.equal(llm.logits(ids), logits), options
            assert llm.generate(ids)[0].token_ids == answer, options
            assert torch.equal(llm.logits(ids), logits), options


@pytest.mark.parametrize("mix", ["int8", "int4", "fp8", MIXES[-1]])
def test_every_placement_gives_the_resident_logits(mix):
    check_placements("tiny", mix, PLACEMENTS)


@pytest.mark.parametrize("mix", ["int8", "attn=int4,mlp=fp8", "attn=fp8,layers.3=int8"])
def test_so_it_is_with_experts(mix):
    check_placements("tiny-moe", mix, [each for each in PLACEMENTS if each["gpu_layer_budget"] < 6])


@pytest.mark.parametrize("mix", ["int8", MIXES[-1]])
def test_layers_move_without_being_quantised_again(mix, monkeypatch):
    with open_model("tiny", mix, gpu_layer_budget=2) as llm:
        monkeypatch.setattr(codec, "write", None)
        ids = llm.tokenizer.encode(PROMPT)
        logits = llm.logits(ids)
        for options in (
            {"gpu_layer_budget": 8},
            {"gpu_layer_budget": 5, "slots": 2},
            {"offload": "naive", "gpu_layer_budget": 3},
        ):
            llm.place(**options)
            assert torch.equal(llm.logits(ids), logits), options


@pytest.mark.parametrize("mix", [*MIXES, None])
@pytest.mark.parametrize("options", PLACEMENTS[1:2] + PLACEMENTS[-1:])
def test_bytes_of_a_pass_are_those_of_the_layout(mix, options):
    with open_model("tiny", mix, **options) as llm:
        store, placement = llm.model.model.layers, llm.decision.placement
        ids = llm.tokenizer.encode(PROMPT)
        llm.logits(ids)
        before = store.bytes_copied
        llm.logits(ids)
        a_pass = sum(
            memory.block_bytes(llm.config, index, part, 4) for index in placement.streamed for part in PARTS
        )
        assert store.bytes_copied - before == a_pass
        assert store.bytes_copied - before == sum(
            store.layouts[index].num_bytes for index in placement.streamed
        )


@pytest.mark.parametrize(("mix", "least", "most"), [("int8", 1.95, 2), ("fp8", 1.95, 2), ("int4", 3.6, 3.8)])
def test_a_pass_copies_so_many_times_fewer_bytes(mix, least, most):
    copied = []
    for each in (mix, None):
        with open_model("tiny", each, dtype="bfloat16", gpu_layer_budget=1) as llm:
            llm.logits([1, 2, 3])
            copied.append(llm.model.model.layers.bytes_copied)
    assert least < copied[1] / copied[0] < most


@pytest.mark.parametrize("mix", MIXES)
def test_the_host_arena_holds_the_packed_layers_and_nothing_more(mix):
    with open_model("tiny", mix, gpu_layer_budget=2) as llm:
        plan = memory.plan(llm.config, 4, 256)
        table = plan.embedding if plan.head else 0
        assert plan.layers + table <= llm.residency.arena.size < plan.layers + table + 256 * 4


@pytest.mark.parametrize("options", PLACEMENTS)
def test_the_peak_is_within_what_was_planned(options):
    """Slots that layers of several formats pass through included."""
    with open_model("tiny", MIXES[-1], **options) as llm:
        out = llm.generate(PROMPT)[0]
        assert out.metrics.peak_memory_bytes <= llm.decision.device_bytes


@pytest.fixture(scope="module")
def right():
    """`right(mix)` → how many of 100 held-out sums `tiny` gets right."""
    samples, found = held_out("arithmetic", 100), {}

    def count(mix: str | None) -> int:
        if mix not in found:
            with LLM("tiny", device="cpu", dtype="float32", quantize=mix) as llm:
                answers = our_answers(llm, samples, limit=16)
            found[mix] = sum(a == s.answer for a, s in zip(answers, samples, strict=True))
        return found[mix]

    return count


@pytest.mark.parametrize(("mix", "points"), [("int8", 1), ("fp8", 1), ("int4", 5), ("int4-sym", 5)])
def test_arithmetic_stays_right(right, mix, points):
    assert right(None) >= 98
    assert right(mix) >= right(None) - points


# ---- reports, plans and errors ----


def test_the_report_says_formats_and_bytes():
    with open_model("tiny", "attn=int8,mlp=int4", dtype="bfloat16", gpu_layer_budget=2) as llm:
        (line,) = [line for line in llm.report().splitlines() if line.startswith("stored as")]
    # Attention 2 · 512 · 256 + 2 · 128 · 256 weights of 8 bits and 1,024 scales; MLP 3 · 512 · 256 of 4.25
    # bits; norms of 256, 64, 64 and 256, rounded up to 256 bytes; one row of scales a stack.
    packed = 327680 + 2 * (512 + 2 * 128 + 256) + 208896 + 2 * 512 + 2 * 256
    dense = 2 * (327680 + 393216) + 2 * 512 + 2 * 256
    assert line == f"stored as attn=int8,mlp=int4: {gib(packed)} a layer instead of {gib(dense)}"
    with open_model("tiny", None) as llm:
        assert "stored as" not in llm.report()


def plan(capsys, *argv: str) -> dict[str, str]:
    lines = succeeds(capsys, "plan", *argv).splitlines()
    return {line[:18].strip(): line[18:] for line in lines}


def test_a_plan_counts_the_packed_bytes(capsys):
    dense, packed, mixed = (
        plan(capsys, "random:Qwen3-8B", *more)
        for more in ((), ("--quantize", "int4"), ("--quantize", "int4,layers.0-3=int8"))
    )
    assert "stored as" not in dense
    assert packed["stored as"] == "int4: 97.8 MiB a layer instead of 368.0 MiB"
    assert mixed["stored as"].startswith("int4,layers.0-3=int8: 97.8 MiB to 184.1 MiB a layer")
    assert (dense["all layers"], packed["all layers"]) == ("12.94 GiB", "3.44 GiB")


def test_a_plan_for_a_machine_follows_the_packed_bytes(capsys):
    streams = ("--hardware", "rtx3070", "--gpu-layer-budget", "2")
    dense = plan(capsys, "random:Qwen3-8B", *streams)
    packed = plan(capsys, "random:Qwen3-8B", "--quantize", "int4", *streams)
    assert (dense["copied a token"], packed["copied a token"]) == ("12.58 GiB", "3.34 GiB")
    speeds = [float(each["speed"].split()[0]) for each in (dense, packed)]
    assert 3.6 < speeds[1] / speeds[0] < 3.9
    laptop = [
        float(plan(capsys, "random:Qwen3-8B", *more, "--hardware", "laptop")["speed"].split()[0])
        for more in ((), ("--quantize", "int8"))
    ]
    assert 1.7 < laptop[1] / laptop[0] < 2


def test_a_plan_takes_no_torch():
    program = (
        "import sys; from minillm.__main__ import main; "
        "main(['plan', 'tiny', '--quantize', 'attn=int8,mlp=int4', '--hardware', 'rtx3070']); "
        "print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.endswith("False\n")


@pytest.mark.parametrize(
    ("model", "mix", "words"),
    [
        (
            "tiny-moe",
            "int4",
            (
                "layers.0.mlp.experts.0.down_proj.weight has 48 columns",
                "groups of 128",
                "choose int8 or fp8",
                "mlp=int8",
            ),
        ),
        (
            "tiny-moe",
            "fp8,layers.4.mlp=int4-sym",
            ("layers.4.mlp.experts.0.down_proj", "groups of 64", "mlp=int8"),
        ),
        ("tiny", "int3", ("'int3'", "int8, int4, int4-sym, fp8")),
        ("tiny", "int8,layers.8=int4", ("layers.8", "8 layers", "at most layers.7")),
        ("tiny", "attn=int8,attn=int4", ("attn", "int8 and int4", "keep one")),
        ("tiny", "gptq", ("'gptq'", "int8, int4")),
        ("tiny", "int8+int4", ("'int8+int4'",)),
        ("tiny", "", ("quantize is ''",)),
    ],
)
def test_a_mix_that_cannot_be_is_one_line(capsys, model, mix, words):
    for command in (("generate", model, "--prompt", "x"), ("plan", model)):
        fails(capsys, 2, *command, f"--quantize={mix}", says=words)
    with pytest.raises(InputError):
        open_model(model, mix)


@pytest.mark.parametrize(
    ("mix", "odd", "options"),
    [
        ("int8", float("nan"), {}),
        ("int4", float("nan"), {"gpu_layer_budget": 1}),
        ("int4-sym", float("inf"), {}),
        ("fp8", float("-inf"), {}),
    ],
)
def test_nan_in_a_weight_is_named(make_checkpoint, mix, odd, options):
    shape = {"hidden_size": 128, "intermediate_size": 128, "num_attention_heads": 4, "head_dim": 32}
    folder, reference = make_checkpoint(**shape)
    with open_model(folder, mix) as llm:
        llm.logits([1, 2])
    with torch.no_grad():
        reference.model.layers[1].mlp.up_proj.weight[5, 77] = odd
    reference.save_pretrained(folder)
    with pytest.raises(
        InputError, match=r"model\.layers\.1\.mlp\.up_proj\.weight holds infinity or NaN"
    ) as caught:
        open_model(folder, mix, **options)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("quantize", ["int8", "int4"])
def test_a_layer_that_moves_keeps_nothing_of_the_place_before(quantize):
    """Without waiting for Python to look for circles: naive offloading leaves a place for each token."""
    with LLM("tiny", device="cpu", quantize=quantize, offload="naive", gpu_layer_budget=1) as llm:
        store = llm.model.model.layers
        gc.disable()
        try:
            before = [
                weakref.ref(module.weight.stack)
                for module in (store[0].self_attn.q_proj, store[0].self_attn.o_proj, store[0].mlp.up_proj)
            ]
            store.bind(0, store.host[0].clone())
            assert [each() for each in before] == [None] * 3
        finally:
            gc.enable()
        store.bind(0, store.host[0])
