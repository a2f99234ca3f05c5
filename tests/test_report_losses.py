"""Where another program is ahead by what no check says: the rows about memory time a first token, too."""

import pytest
from small_results import store

from experiments import report_losses
from experiments.report_results import Archive

MODEL = "Qwen3-8B"


def peak(engine, mode, seconds, **more):
    key = f"{MODEL}/{engine}/{mode}{more.get('budget', '')}/peak"
    return {"key": key, "model": MODEL, "engine": engine, "mode": mode, "ttft_s": seconds} | {
        "prompt_tokens": 4096,
        "question_id": None,
        "tokens_per_s": 6.0,
        **more,
    }


def test_first_tokens_of_the_longest_prompt_are_compared_where_layers_stream(tmp_path):
    archive = Archive(tmp_path)
    rows = [peak("minillm", "prefetch", 0.18, budget=13), peak("minillm", "prefetch", 0.16, budget=14)]
    rows += [peak("vllm", "prefetch", 0.17), peak("vllm", "uva", 0.1), peak("vllm", "resident", 0.01)]
    store(archive, "vllm", rows)
    found = {str(each): each.value for each in report_losses.compared(archive) if "4,096" in each.what}
    start = f"{MODEL}, %d layers: TTFT of 4,096 tokens, ours over vLLM's %s offloader"
    assert found == {
        start % (13, "prefetch"): pytest.approx(0.18 / 0.17),
        start % (13, "uva"): pytest.approx(1.8),
        start % (14, "prefetch"): pytest.approx(0.16 / 0.17),
        start % (14, "uva"): pytest.approx(1.6),
    }
