"""The public names of the library, read from its source without importing it.

Public are the names in `__all__` of these modules; all other modules are internal. Programs and services
import nothing else. Write the list anew after a wanted change: `make surface`.

See: docs/services.md#what-is-public.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

ROOT = Path(__file__).resolve().parent.parent.parent
GOLDEN = ROOT / "tests" / "public_surface.txt"
MOST_NAMES: Final = 150
PUBLIC: Final = (
    "hearthnet",
    "hearthnet.agent",
    "hearthnet.bus",
    "hearthnet.contracts",
    "hearthnet.core",
    "hearthnet.models",
    "hearthnet.protocol",
    "hearthnet.service",
    "hearthnet.telemetry",
    "hearthnet.testing",
    "hearthnet.text",
    "hearthnet.trust",
)


def source(module: str, root: Path = ROOT) -> ast.Module:
    """The syntax tree of a public module or package."""
    path = root.joinpath(*module.split("."))
    file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    return ast.parse(file.read_text("utf-8"))


def public_names(tree: ast.Module) -> list[str]:
    """The names in `__all__`."""
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return sorted(ast.literal_eval(node.value))
    return []


def places(tree: ast.Module) -> dict[str, str]:
    """Where each name is defined: `module:name` by the imports, those for type checkers too, else `:name`."""
    found: dict[str, str] = {}
    for node in tree.body:
        if isinstance(node, ast.ImportFrom):
            found |= _imported(node)
        elif isinstance(node, ast.ClassDef | ast.FunctionDef):
            found[node.name] = f":{node.name}"
        elif isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            for one in node.body:
                if isinstance(one, ast.ImportFrom):
                    found |= _imported(one)
    return found


def _imported(node: ast.ImportFrom) -> dict[str, str]:
    return {name.asname or name.name: f"{node.module}:{name.name}" for name in node.names}


def lazy_places(tree: ast.Module) -> dict[str, str]:
    """Where each name is loaded from at its first use, as `places`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "lazy":
            modules: dict[str, str] = ast.literal_eval(node.args[1])
            entries = [(module, entry) for module, names in modules.items() for entry in names.split()]
            named = ((module, *entry.partition("=")[::2]) for module, entry in entries)
            return {name: f"{module}:{other or name}" for module, name, other in named}
    return {}


@cache
def surface(root: Path) -> dict[str, list[str]]:
    """The public names by module."""
    return {module: public_names(source(module, root)) for module in PUBLIC}


def not_public(root: Path, text: str) -> Iterator[str]:
    """The internal names of the library that a module with this text imports or uses."""
    names = surface(root)
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.ImportFrom(module=str(module), names=imported) if f"{module}.".startswith("hearthnet."):
                yield from (
                    f"{module} {one.name}" for one in imported if one.name not in names.get(module, ())
                )
            case ast.Import(names=imported):
                yield from (one.name for one in imported if one.name.startswith("hearthnet."))
            case ast.Attribute(value=ast.Name(id="hearthnet"), attr=name) if name not in names["hearthnet"]:
                yield f"hearthnet {name}"
            case _:
                pass


def listing(root: Path) -> str:
    """One line a name, `module name`."""
    return "".join(f"{module} {name}\n" for module in PUBLIC for name in public_names(source(module, root)))


if __name__ == "__main__":
    GOLDEN.write_text(listing(ROOT))
