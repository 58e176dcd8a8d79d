"""The public names of the library, read from its source without importing it.

The command line and the supervisor are programs: what they promise is their shell interface, tested as such.

Write the list anew after a wanted change: `make surface`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
GOLDEN = ROOT / "tests" / "public_surface.txt"
PROGRAMS = {"cli", "up"}


def modules(root: Path) -> Iterator[tuple[str, Path]]:
    """Dotted name and file of each public module of the library."""
    for file in sorted((root / "hearthnet").rglob("*.py")):
        parts = file.relative_to(root).with_suffix("").parts
        parts = parts[:-1] if parts[-1] == "__init__" else parts
        if not PROGRAMS & set(parts[1:2]) and not any(part.startswith("_") for part in parts):
            yield ".".join(parts), file


def public_names(source: str) -> list[str]:
    """`__all__` if the module has one, else the names without underscore that it defines itself."""
    tree = ast.parse(source)
    for node in tree.body:
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value and "__all__" in _defined(node):
            return sorted(ast.literal_eval(node.value))
    return sorted({name for node in tree.body for name in _defined(node) if not name.startswith("_")})


def _defined(node: ast.stmt) -> list[str]:
    match node:
        case ast.ClassDef(name=name) | ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
            return [name]
        case ast.Assign(targets=targets):
            return [target.id for target in targets if isinstance(target, ast.Name)]
        case ast.AnnAssign(target=ast.Name(id=name)):
            return [name]
        case _:
            return []


def listing(root: Path) -> str:
    """One line a name, `module name`; a module without public names has none."""
    names = [f"{module} {name}" for module, file in modules(root) for name in public_names(file.read_text())]
    return "".join(f"{line}\n" for line in names)


if __name__ == "__main__":
    GOLDEN.write_text(listing(ROOT))
