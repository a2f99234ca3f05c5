"""Weights in fewer bits: formats, how they are packed, and files that hold packed weights.

`formats.py`, `layout.py` and `mix.py` know names and sizes without torch; `codec.py` quantises, expands and
multiplies; `gguf/`, `gptq.py` and `awq.py` read what others have quantised.
"""
