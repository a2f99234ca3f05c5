"""From what a caller asks to the sequences that the engine runs."""

from minillm.config import ModelConfig
from minillm.errors import InputError
from minillm.prompts import read_prompts
from minillm.sampling_params import SamplingParams
from minillm.sequence import Sequence
from minillm.tokenizer import Tokenizer


def make_sequences(
    prompts: str | list,
    params: SamplingParams | list[SamplingParams] | None,
    config: ModelConfig,
    max_model_len: int,
    *,
    tokenizer: Tokenizer | None,
    seed: int,
) -> list[Sequence]:
    """A sequence for each prompt, seeded one after the other from `seed`; InputError for bad ones."""
    token_ids = read_prompts(prompts, tokenizer, config.vocab_size, max_model_len)
    each = _params_for(params, len(token_ids))
    return [
        Sequence(
            ids,
            request,
            seed=seed + index,
            end_ids=frozenset(() if request.ignore_eos else config.eos_token_ids),
            max_model_len=max_model_len,
            tokenizer=tokenizer,
        )
        for index, (ids, request) in enumerate(zip(token_ids, each, strict=True))
    ]


def _params_for(params: SamplingParams | list[SamplingParams] | None, count: int) -> list[SamplingParams]:
    default = SamplingParams() if params is None else params
    each = list(params) if isinstance(params, list | tuple) else [default] * count
    if len(each) != count or not all(isinstance(p, SamplingParams) for p in each):
        raise InputError(f"params must be one SamplingParams or one for each of the {count} prompts")
    return each
