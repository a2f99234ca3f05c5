"""GGUF files: their blocks of quantised weights, their metadata, names and tokenizer.

`file.py` reads with the `gguf` library (the extra `gguf`); `blocks.py` expands with torch on any device.
"""
