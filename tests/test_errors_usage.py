"""Wrong options and values, through the command line and the API; the good value beside each bad one."""

import numpy as np
import pytest
from command_line import fails, good_model, succeeds

from minillm import LLM, SamplingParams
from minillm.errors import InputError

ASK = ("--prompt", "Hi", "--max-new-tokens", "2")


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return good_model(tmp_path_factory.mktemp("model"))


# option, good value, bad values of the right type, what the line must name
NUMBERS = [
    ("--max-new-tokens", "1", ["0", "-5"], "max_tokens"),
    ("--temperature", "0.7", ["-0.1", "nan", "inf"], "temperature"),
    ("--top-k", "5", ["-1"], "top_k"),
    ("--top-p", "1", ["0", "1.5", "-1", "nan"], "top_p"),
    ("--min-p", "0.5", ["-0.5", "2"], "min_p"),
    ("--repetition-penalty", "1.2", ["0", "-1", "inf"], "repetition_penalty"),
    ("--seed", "3", ["-1", str(2**64)], "seed"),
    ("--max-model-len", "512", ["0", "-2", "513"], "max_model_len"),
]


@pytest.mark.parametrize(
    ("option", "good", "bad", "named"),
    [(option, good, bad, named) for option, good, values, named in NUMBERS for bad in values],
)
def test_a_number_out_of_range(model, capsys, option, good, bad, named):
    succeeds(capsys, "generate", model, *ASK, option, good)
    fails(capsys, 2, "generate", model, *ASK, f"{option}={bad}", says=(named, bad))


@pytest.mark.parametrize(("option", "good"), [(option, good) for option, good, *_ in NUMBERS])
@pytest.mark.parametrize("bad", ["many", "", "1,5", "0x10", "1 2"])
def test_a_value_that_is_no_number(model, capsys, option, good, bad):
    succeeds(capsys, "generate", model, *ASK, option, good)
    fails(capsys, 2, "generate", model, *ASK, option, bad, says=(option, repr(bad), "number"))


def test_a_fraction_where_a_whole_number_belongs(model, capsys):
    fails(capsys, 2, "generate", model, *ASK, "--top-k", "2.5", says=("--top-k", "'2.5'", "whole"))


@pytest.mark.parametrize(
    ("option", "good", "bad"),
    [
        ("--dtype", "bfloat16", "int8"),
        ("--offload", "none", "sometimes"),
        ("--device", "cpu", "gpu"),
        ("--device", "cpu", "cuda:99"),
        ("--device", "cpu", "meta"),
        ("--stop-token-ids", "5,6", "5,x"),
        ("--stop-token-ids", "5", "-5"),
        ("--stop", "end", ""),
    ],
)
def test_an_unknown_value(model, capsys, option, good, bad):
    succeeds(capsys, "generate", model, *ASK, option, good)
    name = option.removeprefix("--").replace("-", "_")
    line = fails(capsys, 2, "generate", model, *ASK, f"{option}={bad}")
    assert bad in line
    assert name in line.replace("-", "_")


def test_a_format_that_does_not_exist_is_refused_and_not_ignored(model, capsys):
    succeeds(capsys, "generate", model, *ASK, "--quantize", "int8")
    fails(capsys, 2, "generate", model, *ASK, "--quantize", "2", says=("quantize", "'2'", "int8, int4"))


@pytest.mark.parametrize("option", ["--slots", "--link-gb-s"])
def test_what_changes_nothing_without_offloading_is_refused(model, capsys, option):
    ask, name = ("generate", model, *ASK, "--device", "cpu", option, "1"), option[2:].replace("-", "_")
    succeeds(capsys, *ask, "--gpu-layer-budget", "2")
    fails(capsys, 2, *ask, says=(name, "1"))


@pytest.mark.parametrize(
    ("argv", "named"),
    [
        ((), "COMMAND"),
        (("invent",), "'invent'"),
        (("generate",), "MODEL"),
        (("generate", "MODEL"), "--prompt"),
        (("generate", "MODEL", "--prompt", "a", "--prompts", "b"), "--prompts"),
        (("generate", "MODEL", "--prompt"), "--prompt"),
        (("generate", "MODEL", "--prompt", "a", "--temprature", "1"), "--temprature"),
        (("generate", "MODEL", "--prompt", "a", "--temp", "1"), "--temp"),
        (("generate", "MODEL", "--prompt", "a", "--max-tokens", "1"), "--max-tokens"),
        (("generate", "MODEL", "--prompt", "a", "b"), "b"),
        (("generate", "MODEL", "--prompt", "a", "--json=yes"), "--json"),
        (("chat", "MODEL", "--prompt", "a"), "--prompt"),
        (("plan",), "MODEL"),
        (("plan", "MODEL", "--temperature", "1"), "--temperature"),
        (("plan", "MODEL", "--dtype", "int8"), "int8"),
        (("download",), "HUB_ID"),
        (("--fast",), "COMMAND"),
        (("--fast", "plan", "MODEL"), "--fast"),
    ],
)
def test_wrong_usage(model, capsys, argv, named):
    succeeds(capsys, "generate", model, *ASK)
    argv = [str(model) if part == "MODEL" else part for part in argv]
    fails(capsys, 2, *argv, says=(named, "--help"))


@pytest.mark.parametrize(
    "keywords",
    [
        {"max_tokens": 1.5},
        {"max_tokens": True},
        {"max_tokens": "8"},
        {"max_tokens": None},
        {"temperature": "hot"},
        {"temperature": None},
        {"top_k": 1.0},
        {"top_p": [0.5]},
        {"seed": "x"},
        {"stop": 5},
        {"stop": [5]},
        {"stop": ("",)},
        {"stop": None},
        {"stop_token_ids": "1"},
        {"stop_token_ids": [1.5]},
        {"stop_token_ids": None},
        {"ignore_eos": "yes"},
        {"temperature": 10**400},
        {"top_k": "10" * 5000},
        {"max_tokens": np.float64(3.0)},
        {"stop": {"a": 1}},
        {"stop": b"ab"},
        {"stop_token_ids": {1: 2}},
    ],
    ids=repr,
)
def test_the_api_refuses_values_of_another_kind(keywords):
    SamplingParams(max_tokens=8, temperature=1, seed=0, stop="end", stop_token_ids=5, ignore_eos=True)
    SamplingParams(stop=["a", "b"], stop_token_ids=[1, 2])
    with pytest.raises(InputError, match=next(iter(keywords))):
        SamplingParams(**keywords)


@pytest.mark.parametrize(
    "keywords",
    [
        {"dtype": "int8"},
        {"dtype": None},
        {"offload": "sometimes"},
        {"device": "gpu"},
        {"device": 3.5},
        {"max_model_len": 0},
        {"max_model_len": 1.5},
        {"max_model_len": "512"},
        {"seed": -1},
        {"seed": None},
        {"seed": 2**64},
        {"slots": 2},
        {"quantize": "int4"},  # whose groups do not divide this model's 48 columns
        {"quantize": "int3"},
        {"quantize": 4},
        {"enforce_eager": "yes"},
        {"enforce_eager": None},
        {"enforce_eager": np.array([1, 2])},
        {"dtype": np.array(["float32", "auto"])},
        {"max_model_len": 10**5000},
        {"gpu_memory_gib": 1e300},
        {"gpu_memory_gib": -1},
        {"link_gb_s": 1e-300},
        {"link_gb_s": 10**400},
    ],
    ids=lambda keywords: next(iter(keywords)),  # repr refuses numbers of thousands of digits
)
def test_llm_refuses_bad_values(model, keywords):
    good = {"dtype": "float32", "offload": "none", "quantize": "int8", "max_model_len": 512}
    LLM(model, device="cpu", seed=np.int64(3), **good).close()
    name = "int4's groups of 128" if keywords == {"quantize": "int4"} else next(iter(keywords))
    with pytest.raises(InputError, match=name) as caught:
        LLM(model, **keywords)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 200


def test_numpys_numbers_count_as_pythons():
    numpys = SamplingParams(
        max_tokens=np.int64(3), top_k=np.uint8(4), seed=np.int32(5), temperature=np.float32(0.5),
        stop_token_ids=np.array([1, 2]),
    )  # fmt: skip
    assert numpys == SamplingParams(max_tokens=3, top_k=4, seed=5, temperature=0.5, stop_token_ids=(1, 2))
    assert {type(value) for value in (numpys.max_tokens, numpys.seed, *numpys.stop_token_ids)} == {int}


def test_a_number_without_end_is_told_to_be_that():
    SamplingParams(temperature=1e300)
    with pytest.raises(InputError, match="temperature is inf: it must be a finite number at least 0"):
        SamplingParams(temperature=float("inf"))
    with pytest.raises(InputError) as caught:
        SamplingParams(max_tokens=-(10**5000))
    assert len(str(caught.value)) < 200


def test_unknown_keywords_are_errors(model):
    with pytest.raises(TypeError, match="temprature"):
        SamplingParams(temprature=1.0)
    with pytest.raises(TypeError, match="gpu_layers"):
        LLM(model, gpu_layers=3)


def test_params_must_fit_the_prompts(model):
    with LLM(model) as llm:
        params = SamplingParams(max_tokens=1)
        assert len(llm.generate(["a", "b"], [params, params])) == 2
        for bad in ([params], [], {"max_tokens": 1}, "greedy", [params, None]):
            with pytest.raises(InputError, match="params"):
                llm.generate(["a", "b"], bad)
        with pytest.raises(InputError, match="one prompt"):
            llm.stream(["a", "b"], params)
