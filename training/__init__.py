"""How the shipped models are made: text generators, tokenizer, training and evaluation commands.

Nothing under `minillm/` imports this package. Order of use: `training.tokenizer`, `training.train`,
`training.prompts`, each run with `python -m`.
"""
