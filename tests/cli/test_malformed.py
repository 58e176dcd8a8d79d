"""Malformed files and arguments before every command: one line in words, never those of a parser."""

from __future__ import annotations

import errno
import tempfile
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from hearthnet.cli import app
from hearthnet.core.errors import HearthNetError
from tests.cli.conftest import Here
from tests.helpers.shell import Shell

RAW = (
    "Traceback",
    "Extra data",
    "ExceptionGroup",
    "TaskGroup",
    "DecodeError",
    "went wrong",
    "codec can't",
    "Errno",
)
CALLS = (
    ("status",),
    ("doctor",),
    ("link",),
    ("ask", "how deep is the well?"),
    ("runs", "list"),
    ("runs", "show", "01M83VKMSNNSCW8V0F7DYAM65K"),
    ("ingest", "DOC", "--corpus", "wells"),
    ("corpus", "list"),
    ("corpus", "remove", "wells", "--all", "--yes"),
    ("file", "put", "DOC"),
    ("file", "list"),
    ("file", "get", "0123456789"),
    ("file", "remove", "0123456789"),
    ("file", "verify"),
    ("translate", "DOC", "--to", "de"),
    ("market", "post", "--title", "Ladder", "--body", "Ring twice."),
    ("market", "list"),
    ("market", "verify", "DOC"),
    ("market", "delete", "--all", "--yes"),
    ("outbox", "list"),
    ("outbox", "send"),
    ("caps",),
    ("call", "rag.query@1.0", "--body", '{"params": {}} {}'),
    ("call", "rag.query@1.0", "--body", '{"params": {"corpus": "wells"}, "input": {"query": "deep"}}'),
    ("call", "rag.query@1.0", "corpus=wells", "query"),
    ("call", "hello.greet", "name=Ada"),
    ("invite", "create"),
    ("invite", "list"),
    ("invite", "sign", "hearthnet-invite:e30", "--yes"),
    ("door", "list"),
    ("door", "open"),
    ("door", "close"),
    ("members",),
    ("revoke", "A" * 16),
    ("person", "show"),
    ("device", "list"),
    ("device", "remove", "none", "--yes"),
    ("recover", "--words", "DOC", "--keep-all", "--yes"),
    ("helpers", "list"),
    ("helpers", "kept"),
    ("helpers", "begin", "--keep-all", "--yes"),
    ("backup", "list", "DOC"),
    ("backup", "verify", "DOC"),
    ("token", "show", "a.b.c"),
    ("grants", "list"),
    ("share",),
    ("share", "llm", "--with", "nobody"),
    ("usage",),
    ("usage", "--forget", "none"),
    ("tools", "list"),
    ("audit", "list"),
    ("audit", "verify", "DOC"),
    ("clients", "list"),
    ("operator", "list"),
    ("trace",),
    ("logs",),
    ("models", "list"),
    ("models", "remove", "none"),
    ("mcp", "list"),
    ("mcp", "remove", "none"),
    ("service", "new", "json"),
    ("contract", "freeze", "DOC"),
    ("contract", "sign", "--key", "DOC", "DOC"),
)
READ_BY = {
    "hearthnet.toml": ("models", "remove", "none"),
    "roster.json": ("members",),
    "sharing.json": ("share",),
    "device.key": ("members",),
}
"""A command that cannot do without the file, and so has to name it."""


@pytest.fixture(scope="module")
def used() -> Iterator[Path]:
    """A home whose node ran once, and in which a post waits."""
    with tempfile.TemporaryDirectory(prefix="hn-malformed-") as folder:
        shell = Shell(Path(folder) / "home")
        shell.home.mkdir()
        settings = '[server]\nport = 0\n[community]\nport = 0\n[services]\nenabled = ["auth"]\n'
        (shell.home / "hearthnet.toml").write_text(f"{settings}[gateway]\nenabled = false\n")
        with shell.node():
            pass
        assert shell.run("share", "llm", "--with", "nobody").returncode == 0
        assert shell.run("market", "post", "--title", "Ladder", "--body", "Ring.").returncode == 0
        (shell.home / "outbox" / "01M83VKMSNNSCW8V0F7DYAM65K.why").write_text("[1]")
        yield shell.home


def files_of(home: Path) -> list[Path]:
    """Every file that a command may read as JSON, TOML or a key."""
    kinds = {".toml", ".json", ".key", ".jsonl"}
    return [path for path in sorted(home.rglob("*")) if path.suffix in kinds and "nats" not in path.parts]


def check(here: Here, arguments: list[str], code: int) -> None:
    """That a command said in words what it met."""
    said = here.out + here.err
    assert not [word for word in RAW if word in said], (arguments, said)
    if code and arguments[0] != "doctor":  # whose result is what it met
        assert here.err.splitlines()[-1].startswith("hearthnet: "), (arguments, here.err)


@pytest.mark.req("CLI-42")
@pytest.mark.parametrize(
    "damage", [b"{} {}", b"[[[", b"\xff\xfe\x00", b""], ids=["twice", "open", "bytes", "empty"]
)
def test_commands_with_damaged_files_say_so_in_words(
    here: Here, used: Path, tmp_path: Path, damage: bytes
) -> None:
    document = tmp_path / "doc.md"
    document.write_text('{"well": 1} {"depth": 2}\n')
    found = files_of(used)
    assert {"hearthnet.toml", "roster.json", "device.key"} <= {path.name for path in found}
    for file in found:
        before = file.read_bytes()
        file.write_bytes(damage)
        try:
            for call in CALLS:
                arguments = [str(document) if part == "DOC" else part for part in call]
                code = here(*arguments, "--home", used)
                check(here, arguments, code)
                if READ_BY.get(file.name) == call and (damage or file.suffix != ".toml"):
                    assert code, f"{call} took the damaged {file.name} for good"
                    assert str(file) in here.err.splitlines()[-1]
        finally:
            file.write_bytes(before)
            for posted in set(files_of(used)) - set(found):
                posted.unlink()


@pytest.mark.req("CLI-42")
def test_every_group_of_commands_meets_malformed_input() -> None:
    context = click.Context(app.app)
    assert {call[0] for call in CALLS} >= set(app.app.list_commands(context)) - {"up", "version"}


@pytest.mark.req("CLI-42", "POWER-3")
@pytest.mark.parametrize(
    ("error", "status", "words"),
    [
        (HearthNetError("not_found", "there is no well"), 5, "there is no well"),
        (
            OSError(errno.ENOSPC, "No space left on device", "/home/outbox"),
            8,
            "the disk of /home/outbox is full",
        ),
        (click.UsageError("name one"), 2, "name one"),
        (KeyboardInterrupt(), 130, ""),
        (ValueError("what"), 1, "something went wrong"),
    ],
)
def test_errors_out_of_task_groups_are_translated_alone(
    here: Here, monkeypatch: pytest.MonkeyPatch, error: BaseException, status: int, words: str
) -> None:
    def fails(*_: object, **__: object) -> None:
        raise BaseExceptionGroup("unhandled errors in a TaskGroup", [BaseExceptionGroup("inner", [error])])

    monkeypatch.setattr(app.app, "invoke", fails)
    assert here("version") == status
    if words:
        assert here.err.startswith(f"hearthnet: {words}")
    else:
        assert here.err == ""
    assert "TaskGroup" not in here.err
