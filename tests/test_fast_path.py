"""What is computed by fused kernels, and which model by which of them, on an emulated device.

The kernels run in Triton's interpreter.
"""

import weakref
from functools import partial

import pytest
import torch
from fast_device import PLACES, PROMPTS, SIZES, fast_maker, few_programs, params, tokens  # noqa: F401 - fixtures

pytest.importorskip("triton", reason="Triton is made for Linux only")

from minillm import LLM, ModelConfig, SamplingParams, fast_path
from minillm.accelerators.cuda import Cuda
from minillm.errors import InputError

pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="kernels are compiled here: see tests/gpu")


@pytest.mark.parametrize(
    ("budget", "slots", "mode", "changes"),
    [
        *((*place, {}) for place in (*PLACES, (2, None, "naive"))),
        (2, 1, "prefetch", {"tie_word_embeddings": True, "head_dim": 24}),
    ],
)
def test_tokens_and_logits_are_those_of_the_eager_engine(
    make_checkpoint, make_fast, budget, slots, mode, changes
):
    folder, _ = make_checkpoint(**SIZES, **changes)
    with LLM(folder, device="cpu") as eager:
        expected = tokens(eager.generate(PROMPTS, params(4)))
        logits = eager.logits(PROMPTS[0] + expected[0])
    with make_fast(folder, gpu_layer_budget=budget, slots=slots, offload=mode) as fast:
        assert tokens(fast.generate(PROMPTS[0], params(4))) == expected[:1]
        assert fast.graph_replays == 3, "all tokens but the first"
        assert tokens(fast.generate(PROMPTS, params(4))) == expected
        assert fast.tokens_fed == len(PROMPTS[0]) + 3 + sum(map(len, PROMPTS)) + 9
        assert torch.allclose(fast.logits(PROMPTS[0] + expected[0]), logits, atol=1e-4)


def test_logits_are_the_same_bits_wherever_layers_lie(make_checkpoint, make_fast):
    folder, _ = make_checkpoint(**SIZES)
    seen = []
    with make_fast(folder, gpu_layer_budget=1) as fast:
        for budget, slots, mode in [*PLACES, (2, None, "naive")]:
            fast.place(budget, slots, mode)
            seen.append((fast.logits(PROMPTS[2]), tokens(fast.generate(PROMPTS[0], params(3)))))
    for logits, answer in seen[1:]:
        assert torch.equal(logits, seen[0][0])
        assert answer == seen[0][1]


def test_sampling_and_the_end_token_work_as_without_graphs(make_checkpoint, make_fast):
    folder, _ = make_checkpoint(**SIZES)
    drawn = [SamplingParams(max_tokens=5, temperature=0.9, seed=n, ignore_eos=True) for n in range(3)]
    with LLM(folder, device="cpu") as eager, make_fast(folder) as fast:
        assert tokens(fast.generate(PROMPTS, drawn)) == tokens(eager.generate(PROMPTS, drawn))
        long = tokens(eager.generate(PROMPTS, params(6)))
        ends = SamplingParams(max_tokens=6, stop_token_ids=(long[0][1], long[2][3]), ignore_eos=True)
        found, expected = fast.generate(PROMPTS, ends), eager.generate(PROMPTS, ends)
        assert tokens(found) == tokens(expected)
        assert [o.finish_reason for o in found] == [o.finish_reason for o in expected]


@pytest.mark.parametrize("quantize", ["int8", "fp8", "attn=int8,mlp=fp8"])
def test_quantised_weights_stay_packed(make_checkpoint, make_fast, quantize):
    folder, _ = make_checkpoint(**SIZES)
    with LLM(folder, device="cpu", quantize=quantize) as eager:
        expected, logits = tokens(eager.generate(PROMPTS[0], params(4))), eager.logits(PROMPTS[2])
    seen = []
    for budget, mode in ((None, "auto"), (1, "prefetch"), (2, "naive")):
        with make_fast(folder, quantize=quantize, gpu_layer_budget=budget, offload=mode) as fast:
            assert tokens(fast.generate(PROMPTS[0], params(4))) == expected
            seen.append(fast.logits(PROMPTS[2]))
    assert torch.allclose(seen[0], logits, atol=1e-4)
    assert all(torch.equal(each, seen[0]) for each in seen)


def test_four_bits_are_expanded_for_a_prompt_and_not_for_a_token(make_checkpoint, make_fast):
    grouped = {"hidden_size": 128, "intermediate_size": 128, "num_attention_heads": 4, "head_dim": 32}
    folder, _ = make_checkpoint(**SIZES | grouped | {"num_hidden_layers": 1})
    with LLM(folder, device="cpu", quantize="int4") as eager, make_fast(folder, quantize="int4") as fast:
        assert tokens(fast.generate(PROMPTS[0], params(3))) == tokens(eager.generate(PROMPTS[0], params(3)))
        assert fast.graph_replays == 2


def test_experts_are_computed_eagerly_and_attention_is_fused(make_checkpoint, make_fast):
    folder, _ = make_checkpoint(**SIZES, num_experts=6, moe_intermediate_size=24)
    with LLM(folder, device="cpu") as eager, make_fast(folder) as fast:
        assert fast._engine.graphs is None
        assert tokens(fast.generate(PROMPTS, params(3))) == tokens(eager.generate(PROMPTS, params(3)))


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"attention_bias": True}, "biases"),
        ({"intermediate_size": 33, "hidden_size": 12}, "side by side"),
    ],
)
def test_what_the_kernels_do_not_know_is_computed_eagerly(make_checkpoint, make_fast, changes, reason):
    folder, _ = make_checkpoint(**SIZES | changes)
    with make_fast(folder) as fast, LLM(folder, device="cpu") as eager:
        assert reason in fast_path.eager_because(fast._accelerator, fast.config, fast.dtype)
        assert fast.graph_replays == 0
        assert tokens(fast.generate(PROMPTS, params(3))) == tokens(eager.generate(PROMPTS, params(3)))


@pytest.mark.parametrize(
    ("capability", "dtype", "said"),
    [
        ((7, 5), torch.bfloat16, "bfloat16 kernels need compute capability 8.0; dtype float16 needs 7.5"),
        ((7, 0), torch.bfloat16, "bfloat16 kernels need compute capability 8.0"),
        ((7, 0), torch.float16, "float16 kernels need compute capability 7.5"),
        ((7, 5), torch.float16, None),
        ((8, 6), torch.bfloat16, None),
    ],
)
def test_an_old_card_is_told_what_would_be_faster(
    make_checkpoint, monkeypatch, capsys, capability, dtype, said
):
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: capability)
    card, config = Cuda.__new__(Cuda), ModelConfig.from_folder(make_checkpoint(**SIZES)[0])
    card.device, card.enforce_eager = torch.device("cuda", 0), False
    capsys.readouterr()
    fast_path.say_why_not(card, config, dtype)
    assert capsys.readouterr().err == (
        f"note: this model will be computed operation by operation: {said}\n" if said else ""
    )
    card.enforce_eager = True
    fast_path.say_why_not(card, config, dtype)
    assert capsys.readouterr().err == ""


def test_where_kernels_fail_the_engine_goes_on_without_them(capsys):
    tried = []

    def load(enforce_eager: bool) -> None:
        tried.append(enforce_eager)
        if not enforce_eager:
            raise OSError("no C compiler\nand more")

    device = torch.device("cuda")
    fast_path.or_eagerly(load, device, False)
    assert tried == [False, True]
    assert capsys.readouterr().err.count("\n") == 1
    with pytest.raises(InputError):
        fast_path.or_eagerly(partial(_refuse, InputError("odd")), device, False)
    with pytest.raises(OSError, match="elsewhere"):
        fast_path.or_eagerly(partial(_refuse, OSError("elsewhere")), device, True)


def test_the_model_whose_kernels_fail_is_gone_before_it_is_loaded_again():
    """Two at once may not fit."""

    class Model:
        pass

    made, alive = [], []

    def load(enforce_eager: bool) -> None:
        alive.extend(each() is not None for each in made)
        model = Model()
        made.append(weakref.ref(model))
        if not enforce_eager:
            raise OSError("no C compiler")

    fast_path.or_eagerly(load, torch.device("cuda"), False)
    assert alive == [False]


def test_and_so_it_is_where_its_error_lives_on():
    class Model:
        pass

    made, alive, kept = [], [], []

    def load(enforce_eager: bool) -> None:
        alive.extend(each() is not None for each in made)
        model = Model()
        made.append(weakref.ref(model))
        if not enforce_eager:
            kept.append(OSError("no C compiler"))
            raise RuntimeError("no kernels") from kept[0]

    def first(enforce_eager: bool) -> None:
        try:
            load(enforce_eager)
        except RuntimeError as error:
            kept.append(error)
            raise ValueError("no model") from kept[0]

    fast_path.or_eagerly(first, torch.device("cuda"), False)
    assert alive == [False]


def _refuse(error: Exception, _: bool) -> None:
    raise error
