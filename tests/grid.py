"""A deterministic grid of small Qwen3 models, made by `transformers`, that engines are compared on.

`cases()` lists the configurations, `build(case, folder)` writes one as a checkpoint and returns the model
that was saved: the reference, which has not been through a file.
"""

import copy
import json
import random
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import torch
from transformers import (
    GenerationConfig,
    PreTrainedModel,
    Qwen3Config,
    Qwen3ForCausalLM,
    Qwen3MoeConfig,
    Qwen3MoeForCausalLM,
)
from transformers.utils import logging

logging.disable_progress_bar()
logging.set_verbosity_error()  # the YaRN cases stretch further than max_position_embeddings says, on purpose

COUNT = 48
RATIOS = (1, 2, 4, 8, 3, 6)  # query heads per KV head
HEAD_DIMS = (16, 24, 32, 48, 64, 80, 128, 40, 96, 112)
STORED = ("float32", "bfloat16", "float16")


@dataclass(frozen=True, kw_only=True)
class Case:
    """One model and the prompts it is asked, as lengths in tokens; the first gets the long answer."""

    name: str
    seed: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int | None  # None: left out of the file, which means hidden / heads in an MoE model
    layers: int
    intermediate: int
    vocab: int
    tied: bool
    bias: bool
    theta: float
    yarn: float  # stretch factor, 1 without YaRN
    old_spelling: bool
    shards: int
    stored: str
    experts: int = 0
    top_k: int = 0
    expert_width: int = 0
    norm_topk: bool = False
    mlp_only: tuple[int, ...] = ()
    sparse_step: int = 1
    fused: bool = False
    eos: int = 0  # number of end tokens
    prompt_lengths: tuple[int, ...] = (12,)

    def describe(self) -> dict:
        """The fields that differ from their defaults, for a result's row."""
        return {k: v for k, v in asdict(self).items() if v not in (0, False, (), None) and k != "name"}


def cases(count: int = COUNT) -> list[Case]:
    """The first `count` of the grid; every stretch of a dozen holds all kinds."""
    return [_case(index) for index in range(count)]


def prompts(case: Case) -> list[list[int]]:
    """Token ids of the case's prompts."""
    draw = random.Random(case.seed)
    return [[draw.randrange(case.vocab) for _ in range(length)] for length in case.prompt_lengths]


def build(case: Case, folder: Path) -> tuple[PreTrainedModel, tuple[int, ...]]:
    """Write the checkpoint; returns the reference (float32, evaluation mode) and the end tokens."""
    model = make_model(case)
    eos = _end_tokens(case, model)
    _write_end_tokens(model, eos)
    size = sum(p.numel() for p in model.parameters()) * getattr(torch, case.stored).itemsize
    stored = copy.deepcopy(model).to(getattr(torch, case.stored))
    stored.save_pretrained(
        folder, max_shard_size=size // case.shards + 1, save_original_format=not case.fused
    )
    _rewrite(case, folder / "config.json")
    model.generation_config = GenerationConfig()  # or `generate` would stop where it was told not to
    return model, eos


def make_model(case: Case) -> PreTrainedModel:
    """The model in memory, its weights rounded to the dtype they will be stored in."""
    config = _hf_config(case)
    model = (Qwen3MoeForCausalLM if case.experts else Qwen3ForCausalLM)(config).eval()
    generator = torch.Generator().manual_seed(case.seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            _fill(name, parameter, generator)
            parameter.copy_(parameter.to(getattr(torch, case.stored)))
    return model


# ---- choosing ----


def _case(index: int) -> Case:
    draw = random.Random(1000 + index)
    ratio = RATIOS[(index + index // 6) % len(RATIOS)]
    kv_heads = draw.choice([k for k in (1, 2, 3) if k * ratio <= 16])
    layers = index * 4 % 9 + 1
    case = Case(
        name=f"{index:02d}",
        seed=1000 + index,
        heads=kv_heads * ratio,
        kv_heads=kv_heads,
        head_dim=HEAD_DIMS[index * 3 % len(HEAD_DIMS)],
        hidden=draw.choice((32, 40, 56, 64, 88)),
        layers=layers,
        intermediate=draw.choice((33, 56, 72, 100)),
        vocab=draw.choice((61, 97, 211, 509, 1021, 1283)),
        tied=(index // 2 + index // 8) % 2 == 1,
        bias=index % 10 == 7,
        theta=draw.choice((1e4, 1e5, 1e6)),
        yarn=draw.choice((2.0, 4.0)) if index % 5 == 3 else 1.0,
        old_spelling=index // 3 % 2 == 1,
        shards=draw.choice((2, 3)) if index % 4 == 1 else 1,
        stored=STORED[index // 4 % 3],
        eos=(0, 1, 0, 2)[index % 4],
        prompt_lengths=_lengths(index, draw),
    )
    return _with_experts(case, index, draw) if index % 3 == 2 else case


def _lengths(index: int, draw: random.Random) -> tuple[int, ...]:
    longest = (700, 330, 129, 450)[index % 4]
    return (draw.randint(1, 200), 1, draw.randint(2, 16), draw.randint(17, 128), longest)


def _with_experts(case: Case, index: int, draw: random.Random) -> Case:
    experts = draw.choice((4, 6, 9))
    turn = index // 3
    square = turn % 4 == 3  # head_dim left out, so the width must divide and the half be whole
    return replace(
        case,
        experts=experts,
        top_k=draw.randint(1, 4),
        expert_width=draw.choice((16, 24, 36)),
        norm_topk=turn % 2 == 0,
        mlp_only=(case.layers // 2,) if turn % 3 == 1 and case.layers > 1 else (),
        sparse_step=2 if turn % 4 == 2 and case.layers > 1 else 1,
        fused=turn % 3 == 2,
        head_dim=None if square else case.head_dim,
        hidden=16 * case.heads if square else case.hidden,
    )


# ---- making ----


def _hf_config(case: Case) -> Qwen3Config | Qwen3MoeConfig:
    rope = {"rope_type": "default", "rope_theta": case.theta}
    if case.yarn != 1.0:
        rope |= {"rope_type": "yarn", "factor": case.yarn, "original_max_position_embeddings": 512}
    shared = {
        "vocab_size": case.vocab,
        "hidden_size": case.hidden,
        "intermediate_size": case.intermediate,
        "num_hidden_layers": case.layers,
        "num_attention_heads": case.heads,
        "num_key_value_heads": case.kv_heads,
        "max_position_embeddings": 1024,
        "rope_parameters": rope,
        "tie_word_embeddings": case.tied,
        "attention_bias": case.bias,
    }
    if case.head_dim is not None:
        shared["head_dim"] = case.head_dim
    if not case.experts:
        return Qwen3Config(**shared)
    return Qwen3MoeConfig(
        **shared,
        num_experts=case.experts,
        num_experts_per_tok=case.top_k,
        moe_intermediate_size=case.expert_width,
        norm_topk_prob=case.norm_topk,
        mlp_only_layers=list(case.mlp_only),
        decoder_sparse_step=case.sparse_step,
    )


def _fill(name: str, parameter: torch.Tensor, generator: torch.Generator) -> None:
    """Weights under which answers depend on the whole prompt; the usual 0.02 makes all logits alike.

    Blocks outweigh the embedding, else a tied model repeats its last token. Larger gains would amplify
    float32 rounding until two correct programs differ by 1e-4.
    """
    if name.endswith(".bias"):
        parameter.normal_(0, 0.3, generator=generator)
    elif "q_norm" in name or "k_norm" in name:
        parameter.uniform_(0.7, 1.3, generator=generator)
    elif name.endswith("norm.weight"):
        parameter.uniform_(0.5, 1.5, generator=generator)
    else:
        gain = 1.0 if name in ("lm_head.weight", "model.embed_tokens.weight") else 1.5
        parameter.normal_(0, gain * parameter.shape[-1] ** -0.5, generator=generator)


def _end_tokens(case: Case, model: PreTrainedModel) -> tuple[int, ...]:
    """Tokens that the model does produce, so that some answers end early and others do not."""
    if not case.eos:
        return ()
    prompt = torch.tensor([prompts(case)[2]])
    quiet = GenerationConfig(max_new_tokens=24, do_sample=False, pad_token_id=0)
    answer = model.generate(prompt, attention_mask=torch.ones_like(prompt), generation_config=quiet)
    answer = answer[0, prompt.shape[1] :].tolist()
    return tuple(dict.fromkeys([answer[-1], answer[10]]))[: case.eos]


def _write_end_tokens(model: PreTrainedModel, eos: tuple[int, ...]) -> None:
    # Qwen3's own files: one id in config.json, all of them in generation_config.json only.
    if eos:
        model.config.eos_token_id = eos[0]
        model.generation_config.eos_token_id = list(eos) if len(eos) > 1 else eos[0]


def _rewrite(case: Case, path: Path) -> None:
    """Turn `config.json` into what `transformers` 4 wrote, for a case with the old spelling."""
    values = json.loads(path.read_text())
    if case.old_spelling:
        rope = values.pop("rope_parameters")
        values["rope_theta"] = rope.pop("rope_theta")
        values["rope_scaling"] = None if rope["rope_type"] == "default" else rope
        values["torch_dtype"] = values.pop("dtype")
        if "num_local_experts" in values:
            values["num_experts"] = values.pop("num_local_experts")
    path.write_text(json.dumps(values, indent=2))
