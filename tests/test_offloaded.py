"""The model behind the offloading experiments: limits as on paper, rows that cannot hide a wrong copy."""

import pytest
import torch

from experiments import machine, offload_options, offloaded
from experiments.offloaded import Offloaded, limit, on_card, streamed_bytes
from minillm import ModelConfig, presets, schedule
from minillm.block_times import BlockTimes
from minillm.errors import InputError, RunError
from minillm.units import GIB

LAYER = (
    385_892_864  # bytes of one layer of Qwen3-8B in bf16: 2 · (2·4096² + 2·4096·1024 + 3·4096·12288 + norms)
)
SHAPE = {
    "vocab_size": 300,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 5,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "dtype": "bfloat16",
}


@pytest.fixture
def options(monkeypatch):
    """A model of five layers on the emulated device."""
    monkeypatch.setitem(presets.PRESETS, "Small", ModelConfig(**SHAPE))
    monkeypatch.setattr(offload_options, "PATIENCE_S", 0.0)
    parser = offload_options.parser("x", "x")
    given = ["--device", "cpu", "--model", "random:Small", "--link-gb-s", "5"]
    return offload_options.complete(parser.parse_args(given), {"cpu": {}})


@pytest.mark.parametrize(("budget", "layers"), [(1, 36), (2, 35), (13, 24), (35, 2)])
def test_limit_is_the_link_over_the_fewest_layers_that_can_stream(budget, layers):
    assert limit(presets.load("Qwen3-8B"), 2, budget, 55.0) == pytest.approx(55e9 / (layers * LAYER))


def test_without_copies_there_is_no_limit():
    assert limit(presets.load("Qwen3-8B"), 2, 36, 55.0) is None


def test_second_slot_streams_one_layer_more():
    config = presets.load("Qwen3-8B")
    assert streamed_bytes(config, 2, schedule.place(36, 13, 1)) == 24 * LAYER
    assert streamed_bytes(config, 2, schedule.place(36, 13, 2)) == 25 * LAYER


def test_the_card_gets_a_prediction_where_its_memory_is_enough():
    config, placement = presets.load("Qwen3-8B"), schedule.place(36, 13, 1)
    assert on_card(config, 2, "prefetch", placement, 6 * GIB) == pytest.approx(31.5e9 / (24 * LAYER))
    assert on_card(config, 2, "prefetch", placement, 8 * GIB) is None


def test_defaults_depend_on_the_device(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    own = {"cuda": {"prompts": 10}, "cpu": {"prompts": 2}}
    parser = offload_options.parser("x", "x")
    parser.add_argument("--prompts", type=int)
    big = offload_options.complete(parser.parse_args([]), own)
    assert (big.model, big.cap_gib, big.prompts, big.judged) == ("random:Qwen3-8B", 7.2, 10, True)
    small = offload_options.complete(parser.parse_args(["--device", "cpu", "--prompts", "3"]), own)
    assert (small.model, small.link_gb_s, small.prompts, small.judged) == ("tiny", 0.5, 3, False)
    told = offload_options.complete(parser.parse_args(["--no-goals", "--cap-gib", "5"]), own)
    assert (told.cap_gib, told.judged) == (5.0, False)


def test_memory_is_capped_by_the_share_of_the_whole_card(monkeypatch):
    asked = []
    card = type("Card", (), {"total_memory": 16 * GIB})
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: card)
    monkeypatch.setattr(torch.cuda, "set_per_process_memory_fraction", asked.append)
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: None)
    for gib in (4.0, None, 99.0):
        offload_options.limit_memory("cuda", gib)
    offload_options.limit_memory("cpu", 4.0)
    assert asked == [0.25, 1.0, 1.0]


def test_limit_is_by_the_faster_measurement_of_the_link(monkeypatch):
    times = BlockTimes(link_gb_s=54.0, attention_s=0.0, mlp_s=0.0, head_s=0.0)
    for ceilings, link in (
        ({"link_gb_s": 55.0}, 55.0),
        ({"link_gb_s": 50.0}, 54.0),
        ({"link_gb_s": None}, 54.0),
    ):
        results = type("Found", (), {"description": {"ceilings": ceilings}})
        assert offload_options.link_gb_s(results, times) == link


def test_long_prompt_is_the_shared_ones_in_a_row():
    config = presets.load("Qwen3-8B")
    assert offload_options.joined_prompt(config, 3) == [7985, 264, 6386]  # the first of data/prompts.jsonl
    assert len(offload_options.joined_prompt(config, 20_000)) == 20_000
    assert max(offload_options.joined_prompt(ModelConfig(**SHAPE), 500)) < 300


def test_row_counts_times_tokens_and_bytes(options):
    with Offloaded(options, 24, 5.0, gpu_layer_budget=2) as model:
        model.warm([1] * 16)
        row = model.placed("prefetch") | model.run([1] * 16, 8)
    attention = 4 * (64 + 2 * 64 * 64 + 2 * 32 * 64) + 2 * 256  # two norms of 64 bytes take 256 each
    assert row["streamed_bytes"] == 4 * (attention + 4 * (64 + 3 * 96 * 64))
    assert row["copied_bytes_a_pass"] == row["streamed_bytes"]
    assert (row["resident"], row["streamed"], row["budget"], row["mode"]) == (1, 4, 2, "prefetch")
    assert (row["prompt_tokens"], row["new_tokens"], len(row["token_s"])) == (16, 8, 8)
    assert sum(row["token_s"][1:]) == pytest.approx(7 / row["tokens_per_s"], rel=0.2)


def test_wrong_bytes_stop_the_experiment(options, monkeypatch):
    with Offloaded(options, 24, 5.0, gpu_layer_budget=2) as model:
        model.warm([1] * 16)
        model.run([1] * 16, 2)
        right = streamed_bytes(model.config, 4, model.llm.decision.placement)
        monkeypatch.setattr(offloaded, "streamed_bytes", lambda *_: right + 256)
        with pytest.raises(RuntimeError, match=f"in 2 passes, {right + 256} a pass"):
            model.run([1] * 16, 2)


def test_first_pass_after_a_placement_is_what_warming_up_is_for(options):
    with Offloaded(options, 24, 5.0, gpu_layer_budget=2) as model, pytest.raises(RuntimeError, match="bytes"):
        model.run([1] * 16, 2)  # it fills the slots, too


def test_prediction_for_a_short_request_leaves_the_long_one_out(options):
    with Offloaded(options, 200, 5.0, gpu_layer_budget=2) as model:
        assert model.predicted_peak(200) == model.llm.decision.device_bytes
        spared = 100 * 2 * 5 * 2 * 16 * 4  # float32 keys and values of 100 tokens
        assert model.llm.decision.device_bytes - model.predicted_peak(100) > spared


def test_every_mode_can_be_placed(options):
    with Offloaded(options, 24, 5.0, gpu_layer_budget=1) as model:
        assert model.loaded()["locked_bytes"] is None
        for mode, budget, resident in (("naive", 3, 2), ("prefetch", 3, 2), ("resident", 5, 5)):
            model.place(mode, budget)
            assert model.placed(mode)["resident"] == resident
            assert model.simulated(mode, offload_options.measure_blocks(options)) > 0


@pytest.mark.parametrize(
    ("error", "status", "words"),
    [
        (RunError("no room"), 1, "error: no room\n"),
        (InputError("no such model"), 2, "error: no such model\n"),
        (KeyboardInterrupt(), 130, "continues after the last whole row\n"),
    ],
)
def test_command_that_cannot_go_on_says_so_in_a_line(error, status, words, capsys):
    def fails():
        raise error

    assert offload_options.run(fails) == status
    assert capsys.readouterr().err.endswith(words)
    assert offload_options.run(lambda: 0) == 0


def test_growing_memory_gives_it_back():
    machine.grow_host_memory(0.01)


def test_errors_of_placing_are_the_engines(options):
    with Offloaded(options, 24, 5.0, gpu_layer_budget=1) as model, pytest.raises((RunError, ValueError)):
        model.place("prefetch", 0)
