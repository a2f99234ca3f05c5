"""The reference that parity is measured against: Hugging Face's Qwen3 classes and `generate`."""

from dataclasses import dataclass
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, GenerationConfig, PreTrainedModel

ROUTING_TIE = 1e-6  # of two experts' shares: about ten roundings of a share in float32


@dataclass(frozen=True)
class Greedy:
    """A greedy answer and, for each of its tokens, how far the best logit was ahead of the second."""

    token_ids: list[int]
    margins: list[float]


def load(folder: Path | str, dtype: torch.dtype = torch.float32, device: str = "cpu") -> PreTrainedModel:
    """The model of a folder, with nothing in it that would end or alter an answer."""
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype).to(device).eval()
    model.generation_config = GenerationConfig()
    return model


@torch.inference_mode()
def greedy(model: PreTrainedModel, prompt: list[int], max_tokens: int, eos: tuple[int, ...] = ()) -> Greedy:
    """What `generate` answers to token ids, alone in its batch; a token of `eos` ends it and is included."""
    ids = torch.tensor([prompt], device=model.device)
    settings = generation_settings(max_tokens, eos, output_logits=True, return_dict_in_generate=True)
    out = model.generate(ids, attention_mask=torch.ones_like(ids), generation_config=settings)
    top = torch.cat(out.logits).float().topk(2).values  # [tokens, 2]
    return Greedy(out.sequences[0, len(prompt) :].tolist(), (top[:, 0] - top[:, 1]).tolist())


@torch.inference_mode()
def logits(model: PreTrainedModel, token_ids: list[int]) -> torch.Tensor:
    """Teacher-forced float32 logits [T, vocab] on the CPU, in one pass without a cache."""
    ids = torch.tensor([token_ids], device=model.device)
    return model(ids, use_cache=False).logits[0].float().cpu()


@torch.inference_mode()
def first_routing_tie(model: PreTrainedModel, token_ids: list[int]) -> int:
    """The first position at which rounding may decide which expert is chosen last; T if there is none.

    From there on two correct programs may compute with different experts, and logits cannot be compared.
    """
    first = [len(token_ids)]

    def look(router: torch.nn.Module, inputs: tuple[torch.Tensor, ...], _output: object) -> None:
        shares = torch.nn.functional.linear(inputs[0].flatten(0, -2), router.weight).softmax(-1)
        best = shares.topk(model.config.num_experts_per_tok + 1).values
        close = (best[:, -2] - best[:, -1] <= ROUTING_TIE).nonzero()
        first.extend(close[:1].flatten().tolist())

    routers = [module for name, module in model.named_modules() if name.endswith("mlp.gate")]
    if routers and model.config.num_experts_per_tok < len(routers[0].weight):
        hooks = [router.register_forward_hook(look) for router in routers]
        model(torch.tensor([token_ids], device=model.device), use_cache=False)
        for hook in hooks:
            hook.remove()
    return min(first)


def generation_settings(max_tokens: int, eos: tuple[int, ...] = (), **others) -> GenerationConfig:
    """Greedy decoding; the pad token only fills up a batch."""
    return GenerationConfig(
        max_new_tokens=max_tokens, do_sample=False, eos_token_id=list(eos) or None, pad_token_id=0, **others
    )
