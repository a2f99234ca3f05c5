"""The repository's rules as functions over source text; test_repository.py applies and tests them."""

import ast
import re

FUNCTIONAL = "torch.nn.functional"
ALLOWED_FROM_NN = {"Module", "ModuleList", "Linear", "Embedding", "Parameter", "functional"}
# Model classes, their factories, and the mixin that holds `generate`.
MODEL_CLASS = re.compile(
    r"^AutoModel|For(CausalLM|Conditional|Sequence|Token|Question)|Model$|GenerationMixin"
)
# The brackets keep this line from matching itself.
HOME_PATH = re.compile(r"/(?:hom[e]|User[s])/[A-Za-z]|/roo[t]/|/wor[k]/[a-z]|C:\\\\User[s]")


def long_functions(source: str, limit: int) -> list[str]:
    """Names of functions of more than `limit` lines, decorators not counted."""
    kinds = ast.FunctionDef | ast.AsyncFunctionDef
    found = [node for node in ast.walk(ast.parse(source)) if isinstance(node, kinds)]
    return [node.name for node in found if node.end_lineno - node.lineno + 1 > limit]


def used_names(source: str, module: str) -> set[str]:
    """Everything that `source` takes from `module` or below: imported names, and attributes of it."""
    tree = ast.parse(source)
    aliases = _aliases(tree, module)
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and _inside(node.module or "", module):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.Attribute) and ast.unparse(node.value) in aliases:
            names.add(node.attr)
    return names


def _aliases(tree: ast.AST, module: str) -> set[str]:
    aliases = {module}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            aliases |= {alias.asname for alias in node.names if alias.name == module and alias.asname}
        elif isinstance(node, ast.ImportFrom):
            aliases |= {
                alias.asname or alias.name for alias in node.names if f"{node.module}.{alias.name}" == module
            }
    return aliases


def _inside(name: str, module: str) -> bool:
    return (name == module or name.startswith(module + ".")) and name != FUNCTIONAL


def forbidden_model_classes(source: str) -> set[str]:
    """Model classes that `source` takes from transformers."""
    return {name for name in used_names(source, "transformers") if MODEL_CLASS.search(name)}


def forbidden_layers(source: str) -> set[str]:
    """What `source` takes from torch.nn beyond the five allowed classes and the functions."""
    return used_names(source, "torch.nn") - ALLOWED_FROM_NN
