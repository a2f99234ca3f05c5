"""Prompts as programs give them, turned into checked lists of token ids."""

from minillm.checks import as_whole, shown
from minillm.errors import InputError

Prompt = str | list[int] | tuple[int, ...]


def read_prompts(
    prompts: Prompt | list[Prompt], tokenizer, vocab_size: int, max_model_len: int
) -> list[list[int]]:
    """One prompt or a list of them → token ids of each, all checked before any is run.

    A str or a list or tuple of ints is one prompt. Raises InputError: no prompt, an empty one, text without a
    tokenizer, an id outside the vocabulary, more tokens than `max_model_len`.
    """
    several = isinstance(prompts, list | tuple)
    single = isinstance(prompts, str) or (several and prompts and as_whole(prompts[0]) is not None)
    if not single and not several:
        raise InputError(
            f"prompts are a {type(prompts).__name__}: give text, a list of token ids, or a list of those"
        )
    many = [prompts] if single else list(prompts)
    if not many:
        raise InputError("no prompt: give at least one")
    where = [""] if single else [f" {index}" for index in range(len(many))]
    return [
        read_one(prompt, f"prompt{place}", tokenizer, vocab_size, max_model_len)
        for prompt, place in zip(many, where, strict=True)
    ]


def read_one(prompt: Prompt, what: str, tokenizer, vocab_size: int, max_model_len: int) -> list[int]:
    """Token ids of one prompt; `what` is its name in the InputError that a bad one raises."""
    if isinstance(prompt, str):
        if tokenizer is None:
            raise InputError(f"{what} is text, but this model has no tokenizer: give token ids")
        prompt = tokenizer.encode(prompt)
    if not isinstance(prompt, list | tuple):
        raise InputError(f"{what} is a {type(prompt).__name__}, neither text nor a list of token ids")
    if not prompt:
        raise InputError(f"{what} is empty: give at least one token")
    token_ids = [as_whole(token) for token in prompt]
    if None in token_ids:
        odd = prompt[token_ids.index(None)]
        raise InputError(f"{what} is neither text nor a list of token ids: it has {shown(odd)}")
    bad = [token for token in token_ids if not 0 <= token < vocab_size]
    if bad:
        raise InputError(
            f"{what} has token id {shown(bad[0])}: this model's ids go from 0 to {vocab_size - 1}"
        )
    if len(token_ids) > max_model_len:
        raise InputError(
            f"{what} has {len(token_ids)} tokens, more than the context of {max_model_len}: shorten it"
        )
    return token_ids
