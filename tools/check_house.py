"""Check the shape of the source tree: folders, names, docstrings, references and public names.

Each check counts violations against a limit; the exit status is 1 when a limit is exceeded. Files are parsed,
never imported. `--list WORD` prints the violations of the checks whose title contains WORD.

See: docs/style.md#names-that-are-checked.
"""

from __future__ import annotations

import argparse
import ast
import re
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from functools import cached_property
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).resolve().parent.parent
MAX_MODULES: Final = 20
MAX_SUBJECT: Final = 72
SUBJECTS: Final = 50
"""Commits that are looked at, the newest first."""
MEANINGS: Final = 3
MAX_PUBLIC: Final = 150
LEAST_OFFERED: Final = 10
RIDDLES: Final = frozenset(
    {
        "acting",
        "actingfor",
        "acts",
        "alarms",
        "allowance",
        "around",
        "aside",
        "ask_own",
        "asked",
        "asking",
        "ballot",
        "below",
        "boxes",
        "briefly",
        "called_again",
        "chosen",
        "clocks",
        "complain",
        "dead",
        "deciding",
        "demand",
        "desk",
        "ending",
        "extent",
        "finding",
        "fitted",
        "fitting",
        "fold",
        "found",
        "gates",
        "given",
        "giving",
        "gone",
        "guest",
        "handled",
        "handling",
        "harmless",
        "heads",
        "heeded",
        "heeding",
        "holds",
        "hosted",
        "house",
        "indoubt",
        "inside",
        "judge",
        "judged",
        "keeper",
        "keeping",
        "kept",
        "known",
        "learning",
        "lender",
        "listed",
        "mark",
        "meaning",
        "moment",
        "moments",
        "more",
        "moved",
        "near",
        "newcomer",
        "nobodythere",
        "obeying",
        "outlook",
        "over",
        "own",
        "packer",
        "passing",
        "pasted",
        "presence",
        "proof_read",
        "proved",
        "reached",
        "refused",
        "running",
        "said",
        "say",
        "saying",
        "sayings",
        "says",
        "seen",
        "sight",
        "signs",
        "spoken",
        "standing",
        "sticky",
        "stored",
        "taken",
        "taking",
        "talk",
        "tell",
        "telling",
        "told",
        "took",
        "traced",
        "turns",
        "unheard",
        "unmet",
        "voices",
        "voter",
        "voterbox",
        "voters",
        "wall",
        "wanted",
        "went",
        "who",
        "whom",
        "whose",
        "wipe",
        "wish",
        "worn",
        "yes",
    }
)
"""Words that name nothing of the field, as the name of a module, a class or a function."""
PHRASES: Final = re.compile(
    r"\b(who(?:so)?ever|(?:some|any|every|no)body|for ever|all the same|put out|(?:gone|goes) on with"
    r"|stands? (?:there|in|under|beside|for)|lies? (?:in|under|there|at)|(?:is|are|was) told|is said"
    r"|a (?:yes|no)|in mind|the own|meanwhile|lets? go of|what (?:it|is|was|has|others|came|comes|there)"
    r"|who (?:asks|has|comes|is|was|sends|waits|leaves|may))\b",
    re.IGNORECASE,
)
"""Phrases that docs/style.md bans from docstrings."""
OPENING: Final = re.compile(
    r"(?:what|who|whose|whom|why|where|how|which|when|whoever|whatever)\b", re.IGNORECASE
)
ERRORS: Final = re.compile(r"\b(?:bad_request|not_found|unauthorized|partition|expired|timeout)`")
PAGE: Final = re.compile(r"(?<![\w/.-])docs/((?:[\w-]+/)*[\w-]+\.md)\b")
"""A page that a text refers to by its path from the root."""


BARE_PAGE: Final = re.compile(
    r"(?<![\w/.:-])(?:\.\./)*(?:[\w-]+/)*([\w-]+\.md)\b|\b[Rr]esolutions? \d+|\bseed 00\d|\bM21\b"
)
"""A page that a page refers to in any way, and sections of documents that were never in the repository."""
FENCE: Final = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)


class Check(NamedTuple):
    """A title, the most violations that pass, and the function that finds them."""

    title: str
    limit: int
    violations: Callable[[Tree], list[str]]


class Tree:
    """The sources below a root, each parsed once."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.files = [
            file
            for top in ("hearthnet", "services")
            for file in sorted((root / top).rglob("*.py"))
            if ".venv" not in file.parts
        ]

    def path(self, file: Path) -> str:
        """The path from the root."""
        return str(file.relative_to(self.root))

    @cached_property
    def modules(self) -> dict[Path, ast.Module]:
        """The syntax tree of each file."""
        return {file: ast.parse(file.read_text("utf-8")) for file in self.files}

    def definitions(self) -> Iterator[tuple[Path, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef]]:
        """Public classes and functions at the top level of a module."""
        for file, module in self.modules.items():
            for node in module.body:
                kinds = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
                if isinstance(node, kinds) and not node.name.startswith("_"):
                    yield file, node

    def docstrings(self) -> Iterator[tuple[str, str]]:
        """Path and name, and text, of each docstring."""
        kinds = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
        for file, module in self.modules.items():
            for node in ast.walk(module):
                if isinstance(node, kinds) and (text := ast.get_docstring(node)):
                    yield f"{self.path(file)} {getattr(node, 'name', '')}", text


def large_folders(tree: Tree) -> list[str]:
    """Folders with more modules than `MAX_MODULES`."""
    sizes = Counter(file.parent for file in tree.files if file.name != "__init__.py")
    return [f"{tree.path(folder)}: {size}" for folder, size in sizes.items() if size > MAX_MODULES]


def module_names(tree: Tree) -> list[str]:
    """Modules that are called by one of `RIDDLES`."""
    return [tree.path(file) for file in tree.files if file.stem in RIDDLES]


def definition_names(tree: Tree) -> list[str]:
    """Classes and functions that are called by one of `RIDDLES`."""
    return [
        f"{tree.path(file)}: {node.name}" for file, node in tree.definitions() if node.name.lower() in RIDDLES
    ]


def shared_names(tree: Tree) -> list[str]:
    """Class names with `MEANINGS` definitions or more."""
    places = defaultdict(list)
    for file, node in tree.definitions():
        if isinstance(node, ast.ClassDef):
            places[node.name].append(tree.path(file))
    return [f"{name}: {', '.join(found)}" for name, found in sorted(places.items()) if len(found) >= MEANINGS]


def missing_pages(tree: Tree) -> list[str]:
    """References in code to pages that are not in docs/."""
    pages = {str(page.relative_to(tree.root / "docs")) for page in (tree.root / "docs").rglob("*.md")}
    return [
        f"{tree.path(file)}:{number}: {match[0]}"
        for file in tree.files
        for number, line in enumerate(file.read_text("utf-8").splitlines(), 1)
        for match in PAGE.finditer(line)
        if match[1] not in pages
    ]


def missing_in_docs(tree: Tree) -> list[str]:
    """References in docs/, README.md and CHANGELOG.md to pages that are not in the repository.

    abilities.md tells which founding document asked for what.
    """
    pages = [*(tree.root / "docs").rglob("*.md"), tree.root / "README.md", tree.root / "CHANGELOG.md"]
    there = {page.name for page in pages}
    return [
        f"{tree.path(page)}:{number}: {match[0]}"
        for page in sorted(pages)
        if page.exists() and page.name != "abilities.md"
        for number, line in enumerate(
            FENCE.sub(lambda fence: "\n" * fence[0].count("\n"), page.read_text("utf-8")).splitlines(), 1
        )
        for match in BARE_PAGE.finditer(line)
        if match[1] not in there
    ]


def openings(tree: Tree) -> list[str]:
    """Docstrings that begin with a question word."""
    return [f"{place}: {text.splitlines()[0]}" for place, text in tree.docstrings() if OPENING.match(text)]


def phrases(tree: Tree) -> list[str]:
    """Banned phrases in docstrings."""
    return [f"{place}: {match[0]}" for place, text in tree.docstrings() for match in PHRASES.finditer(text)]


def errors_in_prose(tree: Tree) -> list[str]:
    """Docstrings that name an error and have no `Raises` section."""
    return [place for place, text in tree.docstrings() if ERRORS.search(text) and "Raise" not in text]


def public_names(tree: Tree) -> list[str]:
    """The names that the library shows to others (tests/test_public_surface.py keeps the list)."""
    listed = tree.root / "tests" / "public_surface.txt"
    return listed.read_text("utf-8").splitlines() if listed.exists() else []


def front_door(tree: Tree) -> list[str]:
    """The fault that `import hearthnet` loads fewer than `LEAST_OFFERED` names of the library, or none."""
    module = tree.modules[tree.root / "hearthnet" / "__init__.py"]
    offered = [
        name.name
        for node in module.body
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("hearthnet")
        for name in node.names
    ]
    return [f"it offers {', '.join(offered)}"] if len(offered) < LEAST_OFFERED else []


def long_subjects(tree: Tree) -> list[str]:
    """The subjects of recent commits that are longer than `MAX_SUBJECT` characters."""
    command = ["git", "-C", str(tree.root), "log", "--format=%s", f"-{SUBJECTS}"]
    log = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    return [subject for subject in log.splitlines() if len(subject) > MAX_SUBJECT]


CHECKS: Final = (
    Check(f"folders with more than {MAX_MODULES} modules", 1, large_folders),
    Check("module names outside the glossary", 0, module_names),
    Check("classes and functions outside the glossary", 0, definition_names),
    Check("class names with three or more meanings", 5, shared_names),
    Check("references in code to pages that are not here", 0, missing_pages),
    Check("references in docs to pages that are not here", 0, missing_in_docs),
    Check("docstrings that begin with a question word", 50, openings),
    Check("banned phrases in docstrings", 100, phrases),
    Check("docstrings that name an error without 'Raises'", 0, errors_in_prose),
    Check("public names", MAX_PUBLIC, public_names),
    Check(f"fewer than {LEAST_OFFERED} names at `import hearthnet`", 0, front_door),
    Check(f"of the last {SUBJECTS} commit subjects, longer than {MAX_SUBJECT}", 5, long_subjects),
)


def main(arguments: list[str]) -> int:
    """Print a line for each check; return 1 if a limit is exceeded, else 0."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--list", metavar="WORD", default="", help="print what checks with this word found")
    wanted = parser.parse_args(arguments).list
    tree = Tree(ROOT)
    failed = False
    for check in CHECKS:
        found = check.violations(tree)
        exceeded = len(found) > check.limit
        failed |= exceeded
        print(f"{'FAIL' if exceeded else 'ok  '} {len(found):5}  (limit {check.limit})  {check.title}")
        if exceeded or (wanted and wanted in check.title):
            print("\n".join(f"           {line}" for line in found))
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
