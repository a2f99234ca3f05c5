"""Prompts as programs give them, turned into checked lists of token ids."""

from minillm.errors import InputError

Prompt = str | list[int]


def read_prompts(
    prompts: Prompt | list[Prompt], tokenizer, vocab_size: int, max_model_len: int
) -> list[list[int]]:
    """One prompt or a list of them → token ids of each, all checked before any is run.

    A str or a list of ints is one prompt. Raises InputError: no prompt, an empty one, text without a
    tokenizer, an id outside the vocabulary, more tokens than `max_model_len`.
    """
    single = isinstance(prompts, str) or (isinstance(prompts, list) and prompts and _is_id(prompts[0]))
    if not single and not isinstance(prompts, list | tuple):
        raise InputError(f"prompts are a {type(prompts).__name__}: give text, token ids, or a list of those")
    many = [prompts] if single else list(prompts)
    if not many:
        raise InputError("no prompt: give at least one")
    where = [""] if single else [f" {index}" for index in range(len(many))]
    return [
        _read_one(prompt, f"prompt{place}", tokenizer, vocab_size, max_model_len)
        for prompt, place in zip(many, where, strict=True)
    ]


def _read_one(prompt: Prompt, what: str, tokenizer, vocab_size: int, max_model_len: int) -> list[int]:
    if isinstance(prompt, str):
        if tokenizer is None:
            raise InputError(f"{what} is text, but this model has no tokenizer: give token ids")
        prompt = tokenizer.encode(prompt)
    if not isinstance(prompt, list | tuple) or not all(_is_id(token) for token in prompt):
        raise InputError(f"{what} is neither text nor a list of token ids")
    if not prompt:
        raise InputError(f"{what} is empty: give at least one token")
    bad = [token for token in prompt if not 0 <= token < vocab_size]
    if bad:
        raise InputError(f"{what} has token id {bad[0]}: this model's ids go from 0 to {vocab_size - 1}")
    if len(prompt) > max_model_len:
        raise InputError(
            f"{what} has {len(prompt)} tokens, more than the context of {max_model_len}: shorten it"
        )
    return list(prompt)


def _is_id(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
