"""minillm: a small, real LLM inference engine, and the course that builds it.

Public names load on first use, so that `import minillm` does not import torch.
"""

from importlib import import_module

__version__ = "0.1.0"

_HOMES = {
    "LLM": "minillm.llm",
    "ModelConfig": "minillm.config",
    "SamplingParams": "minillm.sampling_params",
}
__all__ = ["LLM", "ModelConfig", "SamplingParams", "__version__"]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'minillm' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
