"""Weights in fewer bits: formats, how they are packed, and files that hold packed weights.

`formats.py` and `mix.py` know sizes and names without torch; `codec.py` quantises, expands and multiplies.
"""
