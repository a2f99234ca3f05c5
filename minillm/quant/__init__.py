"""Weights in fewer bits: formats, how they are packed, and files that hold packed weights.

`formats.py`, `layout.py`, `mix.py` and `stored.py` know names and sizes without torch; `codec.py` quantises,
expands and multiplies; `saving.py` writes a quantised model, `sources.py` finds packed matrices in checkpoint
files; `gguf/`, `gptq.py` and `awq.py` read what others have quantised.
"""
