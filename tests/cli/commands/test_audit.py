"""What was done with side effects is listed, exported and proved, also where no node runs."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from hearthnet.bus.session.keyring import load_identity, load_roster
from hearthnet.cli.commands import audit
from hearthnet.cli.workflows.audit_proof import prove_to, verify_proof
from hearthnet.cli.workflows.audit_trail import Exported, Part, Verdict, export_to
from hearthnet.core import ids
from hearthnet.core.canonical_json import canonical_json
from hearthnet.core.errors import HearthNetError
from hearthnet.core.ids import new_ulid
from hearthnet.service.effects.audit_log import AuditLog
from hearthnet.trust import audit_chain
from hearthnet.trust.audit_chain import AuditEntry, ChainPosition
from hearthnet.trust.keys import Identity
from tests.cli.conftest import Here
from tests.helpers.audited_calls import entry_fields, write_calls
from tests.helpers.mesh import Mesh
from tests.helpers.probe import post
from tests.helpers.shell import HEARTHNET, Shell

Lines = list[bytes]


def market_post(shell: Shell, title: str) -> dict[str, Any]:
    """A post from the command line; its reply."""
    reply: dict[str, Any] = shell.json(
        "call", "market.post", "--json", "--body", json.dumps(post(new_ulid(), title))
    )
    return reply


@pytest.fixture(scope="module")
def exported(shell: Shell, tmp_path_factory: pytest.TempPathFactory) -> Lines:
    """The lines of an export of a node with three posts and a refused withdrawal of an invite."""
    for number in range(3):
        market_post(shell, f"Audited {number}")
    gone = {"params": {}, "input": {"client_id": new_ulid(), "invite_event_id": new_ulid()}}
    assert shell.run("call", "community.withdraw", "--body", json.dumps(gone)).returncode == 5
    file = tmp_path_factory.mktemp("audit") / "log.jsonl"
    said = shell.json("audit", "export", file, "--json")
    lines = file.read_bytes().splitlines()
    count = len(lines) - 1
    assert said == {"path": str(file), "entries": count, "first": 1, "last": count, "more": False}
    assert file.stat().st_mode & 0o777 == 0o600
    return lines


@pytest.mark.req("AUDIT-8")
def test_calls_are_listed_with_who_asked_and_how_they_ended(shell: Shell) -> None:
    market_post(shell, "Listed")
    refused = shell.run("call", "market.expire", "--body", json.dumps(_expiry()))
    assert refused.returncode == 5
    first, second = shell.json("audit", "list", "--limit", "2", "--json")
    assert (first["capability"], first["code"]) == ("market.post@1.0", "")
    assert (second["capability"], second["code"]) == ("market.expire@1.0", "not_found")
    assert first["caller"] == first["principal"]
    assert first["ended_at"] >= first["time"]
    assert first["outcome"].startswith("blake3:")
    shown = shell.run("audit", "list").stdout
    assert "own key" in shown
    assert "not_found" in shown
    assert "done" in shown


def _expiry() -> dict[str, Any]:
    wanted = {"client_id": new_ulid(), "event_id": new_ulid(), "reason": "fulfilled"}
    return {"params": {}, "input": wanted}


@pytest.mark.req("AUDIT-8")
def test_the_log_of_a_running_node_is_proved(shell: Shell, exported: Lines) -> None:
    verdict = shell.json("audit", "verify", "--json")
    assert verdict["whole"] is True
    assert verdict["entries"] >= len(exported) - 1
    assert verdict["open"] == []
    assert shell.run("audit", "verify").stdout.startswith("whole: ")
    done = shell.run("audit", "export", "-")
    assert len(done.stdout.splitlines()) == verdict["entries"] + 1


@pytest.mark.req("AUDIT-8")
def test_an_export_is_proved_without_a_node(
    here: Here, shell: Shell, exported: Lines, tmp_path: Path
) -> None:
    file = written(tmp_path, exported)
    assert here("audit", "verify", file, "--roster", _roster(shell), "--json") == 0
    verdict = json.loads(here.out)
    began = [entry for entry in map(audit_chain.read, exported[1:]) if entry.kind == "began"]
    assert (verdict["entries"], verdict["calls"]) == (len(exported) - 1, len(began))
    assert here("audit", "verify", file, "--roster", _roster(shell)) == 0
    assert here.out.startswith("whole: ")
    assert ", as it was today " in here.out or ", as it was yesterday " in here.out


def _roster(shell: Shell) -> Path:
    return shell.home / "community" / "roster.json"


def written(folder: Path, lines: Lines) -> Path:
    """A file of these lines."""
    file = folder / "log.jsonl"
    file.write_bytes(b"".join(line + b"\n" for line in lines))
    return file


def _bent(lines: Lines) -> Lines:
    return [lines[0], lines[1].replace(b"market.post@1.0", b"market.past@1.0"), *lines[2:]]


@pytest.mark.req("AUDIT-2", "AUDIT-8")
@pytest.mark.parametrize(
    ("change", "words"),
    [
        (_bent, "entry 1 was altered"),
        (lambda lines: [lines[0], *lines[2:]], "entry 1 is missing"),
        (lambda lines: [*lines[:3], *lines[5:]], "entries 3 to 4 are missing"),
        (lambda lines: [*lines[:3], lines[4], lines[3], *lines[5:]], "entry 3 stands after later ones"),
        (lambda lines: [*lines[:3], lines[2], *lines[3:]], "entry 2 stands twice"),
        (lambda lines: lines[:-2], "are cut off at the end"),
        (lambda lines: lines[:-1], "is cut off at the end"),
    ],
)
def test_what_was_done_to_an_export_is_named(
    here: Here,
    shell: Shell,
    exported: Lines,
    tmp_path: Path,
    change: Callable[[Lines], Lines],
    words: str,
) -> None:
    file = written(tmp_path, change(exported))
    assert here("audit", "verify", file, "--roster", _roster(shell), "--json") == 4
    assert words in here.err
    assert here.err.count("\n") == 1
    told = json.loads(here.out)
    assert told["error"] == "invalid_signature"
    assert str(told["details"]["entry"]) in here.err


@pytest.mark.req("AUDIT-3", "AUDIT-8")
def test_a_node_that_lies_about_a_caller_is_found_out(
    here: Here, shell: Shell, exported: Lines, tmp_path: Path
) -> None:
    """It signs whatever it likes, chain and head included; the caller's frame it cannot."""
    own = load_identity(shell.home / "keys" / "device.key")
    lines, place = [], ChainPosition()
    began = [entry for entry in map(audit_chain.read, exported[1:]) if entry.kind == "began"]
    # Of what people may have deleted, the log keeps the hash of the frame.
    assert any(entry.frame.startswith("blake3:") for entry in began)
    first = next(entry.sequence for entry in began if not entry.frame.startswith("blake3:"))
    for line in exported[1:]:
        entry = audit_chain.read(line)
        lied = {**json.loads(line), "digest": "blake3:" + "0" * 64} if entry.sequence == first else {}
        said = audit_chain.read(canonical_json(lied)) if lied else entry
        again, place = audit_chain.write(said, place, own)
        lines.append(again)
    head = audit_chain.head(own, audit_chain.read_head(exported[0]).community, place, 1)
    file = written(tmp_path, [head, *lines])
    assert here("audit", "verify", file, "--roster", _roster(shell)) == 4
    assert f"entry {first}: the caller's frame says otherwise: arguments" in here.err


@pytest.mark.req("AUDIT-8")
def test_what_is_no_log_of_a_member_is_refused(
    here: Here, shell: Shell, exported: Lines, tmp_path: Path
) -> None:
    stranger = Identity.generate()
    community = audit_chain.read_head(exported[0]).community
    empty = ChainPosition()
    for lines, code, words in (
        (exported[1:], 2, "does not begin with the head of an audit log"),
        ([], 2, "does not begin with the head"),
        ([exported[0].replace(b'"v":1', b'"v":2'), *exported[1:]], 4, "not signed by"),
        ([audit_chain.head(stranger, community, empty, 1)], 4, "who is not in the community"),
        ([audit_chain.head(stranger, stranger.node_id, empty, 1)], 4, "with --roster"),
    ):
        assert here("audit", "verify", written(tmp_path, lines), "--roster", _roster(shell)) == code
        assert words in here.err


@pytest.mark.req("AUDIT-8")
def test_where_it_cannot_be_asked_it_says_so(
    here: Here, shell: Shell, tmp_path: Path, exported: Lines
) -> None:
    assert here("audit", "list") == 3
    assert "no node is running" in here.err
    assert here("audit", "export", tmp_path / "new.jsonl") == 5
    assert "no key at" in here.err, "and so nothing to export"
    assert not (tmp_path / "new.jsonl").exists()
    assert here("audit", "verify", tmp_path / "absent", "--roster", _roster(shell)) == 5
    assert "there is no file" in here.err
    assert here("audit", "verify", tmp_path, "--roster", _roster(shell)) == 2
    assert f"cannot read {tmp_path}: Is a directory" in here.err
    assert here("audit", "verify", written(tmp_path, exported)) == 5
    assert "no roster" in here.err
    assert here("audit") == 0
    assert "verify" in here.out
    there = shell.run("audit", "export", tmp_path / "log.jsonl")
    assert there.returncode == 2
    assert "is there already" in there.stderr
    nowhere = shell.run("audit", "export", tmp_path / "no" / "log.jsonl")
    assert nowhere.returncode == 1
    assert "cannot write" in nowhere.stderr
    assert [file.name for file in tmp_path.iterdir() if file.name.startswith(".")] == []


@pytest.mark.req("AUDIT-12")
def test_a_part_is_exported_and_proved_as_such(
    here: Here, shell: Shell, exported: Lines, tmp_path: Path
) -> None:
    file = tmp_path / "part.jsonl"
    said = shell.json("audit", "export", file, "--from", "3", "--to", "6", "--json")
    assert (said["first"], said["last"], said["more"]) == (3, 6, False)
    assert file.read_bytes().splitlines()[1:] == exported[3:7]
    assert here("audit", "verify", file, "--roster", _roster(shell), "--json") == 0
    verdict = json.loads(here.out)
    assert (verdict["whole"], verdict["part"], verdict["first"], verdict["entries"]) == (False, True, 3, 4)
    assert here("audit", "verify", file, "--roster", _roster(shell)) == 0
    assert here.out.startswith("part: 4 entries of ")
    assert "entries 3 to 6; says nothing about others" in here.out
    # What it has of the log is the log's, and no more and no less than its head says.
    for lines in (exported[4:7], exported[3:6], exported[3:8], exported[1:7]):
        changed = written(tmp_path, [file.read_bytes().splitlines()[0], *lines])
        assert here("audit", "verify", changed, "--roster", _roster(shell)) == 4
    for bad in (("--from", "100000"), ("--from", "4", "--to", "3"), ("--to", "100000")):
        refused = shell.run("audit", "export", tmp_path / "none.jsonl", *bad)
        assert refused.returncode == 5
        assert "the log has the entries 1 to " in refused.stderr


_MEGABYTE = 1_000_000


@pytest.mark.asyncio
@pytest.mark.req("AUDIT-12")
async def test_an_export_of_100_mb_holds_little_of_it(mesh: Mesh, tmp_path: Path) -> None:
    async with await mesh.store() as store:
        line = b"x" * 64_000
        for _ in range(1_600):
            await store.js.publish_async("au.entry", line)
        await store.js.publish_async_completed()
        await write_calls(mesh.identity, store, 1, 0)
    seen: list[tuple[int, int]] = []
    with mesh.published():
        tracemalloc.start()
        try:
            part = Part(max_bytes=200 * _MEGABYTE)
            done = await asyncio.to_thread(
                export_to, mesh.home, tmp_path / "log", part, lambda *at: seen.append(at)
            )
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert (done.first, done.last, done.end) == (1, 1_602, 1_602)
        assert (tmp_path / "log").stat().st_size > 100 * _MEGABYTE
        assert peak < 50 * _MEGABYTE
        assert seen[-1] == (1_602, 1_602)
        assert len(seen) > 5
        small = Part(max_bytes=2 * _MEGABYTE)
        done = await asyncio.to_thread(export_to, mesh.home, tmp_path / "small", small, lambda *_: None)
        assert (done.last, done.end) == (31, 1_602)
        assert (tmp_path / "small").stat().st_size < 2 * _MEGABYTE + 1_000


def stranger(folder: Path, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """A command of somebody without a home, in an empty folder, without any address to connect to."""
    environ = {"PATH": os.environ["PATH"], "HOME": str(folder), "LANG": "C.UTF-8"}
    command = [HEARTHNET, *arguments]
    return subprocess.run(
        command, env=environ, cwd=folder, capture_output=True, text=True, timeout=60, check=False
    )


@pytest.mark.req("AUDIT-13")
def test_a_stranger_verifies_a_proof_of_one_entry(shell: Shell, exported: Lines, tmp_path: Path) -> None:
    entries = [audit_chain.read(line) for line in exported[1:]]
    began = next(one for one in entries if one.capability.startswith("community.withdraw") and one.frame)
    empty = tmp_path / "empty"
    empty.mkdir()
    done = shell.run("audit", "prove", str(began.sequence), "--output", empty / "proof.jsonl")
    assert done.returncode == 0, done.stderr
    assert (empty / "proof.jsonl").stat().st_mode & 0o777 == 0o600
    lines = (empty / "proof.jsonl").read_bytes().splitlines()
    assert lines[1] == exported[began.sequence]
    assert len(lines) == 3
    told = stranger(empty, "audit", "verify", "proof.jsonl", "--json")
    assert told.returncode == 0, told.stderr
    verdict = json.loads(told.stdout)
    assert (verdict["proof"], verdict["node"]) == (True, began.node)
    assert verdict["entry"]["sequence"] == began.sequence
    assert verdict["arguments"]["input"]["client_id"] == began.idempotency_key
    assert [path.name for path in empty.iterdir()] == ["proof.jsonl"], "no home is made"
    shown = stranger(empty, "audit", "verify", "proof.jsonl").stdout
    assert f"{began.node} wrote entry {began.sequence} of its audit log" in shown
    assert f"{began.caller} signed this call" in shown
    assert "not proven:" in shown
    assert "whose keys these are" in shown
    named = stranger(empty, "audit", "verify", "proof.jsonl", "--roster", _roster(shell))
    assert named.returncode == 0
    assert "whose keys these are" not in named.stdout
    # By the number of its end it is the same proof; of a call whose frame is a hash the caller is not proven.
    other = shell.run("audit", "prove", str(began.sequence + 1)).stdout.encode().splitlines()
    assert other[1:] == lines[1:]
    hashed = next(entry for entry in entries if entry.frame.startswith("blake3:"))
    (empty / "hashed").write_text(shell.run("audit", "prove", str(hashed.sequence)).stdout)
    shown = stranger(empty, "audit", "verify", "hashed").stdout
    assert f"that {hashed.caller} signed the call: the log has only blake3:" in shown
    absent = shell.run("audit", "prove", "100000")
    assert absent.returncode == 5
    assert "the log has the entries 1 to " in absent.stderr
    assert shell.run("audit", "prove", "1", "--output", empty / "hashed").returncode == 2


@pytest.mark.req("AUDIT-13")
def test_no_byte_of_a_proof_can_be_changed(here: Here, shell: Shell, exported: Lines, tmp_path: Path) -> None:
    entries = [audit_chain.read(line) for line in exported[1:]]
    began = next(one for one in entries if one.capability.startswith("community.withdraw") and one.frame)
    whole = shell.run("audit", "prove", str(began.sequence)).stdout.encode()
    file = tmp_path / "proof.jsonl"
    file.write_bytes(whole)
    proof = verify_proof(file)
    assert proof.head.node == began.node
    assert f"signed this call with arguments of {began.digest}" in "\n".join(proof.text())
    kinds = {"decided": "was ", "refused": "consent to ", "removed": "removed by retention"}
    for kind, said in kinds.items():
        assert said in proof._entry(msgspec.structs.replace(began, kind=kind))
    for place in range(len(whole)):
        changed = bytearray(whole)
        changed[place] ^= 1 << place % 8
        file.write_bytes(changed)
        with pytest.raises(HearthNetError):
            verify_proof(file)
    for cut in (whole[:-1], whole + b"\n", whole + whole, b"\n" + whole, b"x" * 2_000_000):
        file.write_bytes(cut)
        with pytest.raises(HearthNetError):
            verify_proof(file)
    file.write_bytes(whole.replace(b'"code":""', b'"code":"x"').replace(b'"auth"', b'"euth"'))
    assert here("audit", "verify", file) in (2, 4)


@pytest.mark.asyncio
@pytest.mark.req("AUDIT-13")
async def test_an_entry_that_the_chain_left_is_not_proved(mesh: Mesh, tmp_path: Path) -> None:
    async with await mesh.store() as store:
        await write_calls(mesh.identity, store, 2, 0)
        log = AuditLog(store, mesh.identity)
        entry = audit_chain.read(await log.line(4) or b"")
        line, _ = audit_chain.write(entry, ChainPosition(4, "blake3:" + "0" * 64), mesh.identity)
        await store.js.publish("au.entry", line)
    with mesh.published():
        prove = asyncio.to_thread(prove_to, mesh.home, 4, tmp_path / "proof")
        with pytest.raises(HearthNetError, match="entry 4 was altered: the next one follows another"):
            await prove
        assert await asyncio.to_thread(prove_to, mesh.home, 1, tmp_path / "proof") == [1, 2]
    head, began, _ = (tmp_path / "proof").read_bytes().splitlines()
    roster, stranger = load_roster(mesh.home.roster), Identity.generate()
    assert verify_proof(tmp_path / "proof", roster).names[mesh.identity.node_id]
    decided = AuditEntry(kind="decided", call="x", **entry_fields(stranger, 0))
    line, place = audit_chain.write(decided, ChainPosition(), stranger)
    head = audit_chain.head(stranger, roster.community_id, place, 1, proves=[line])
    assert verify_proof(written(tmp_path, [head, line])).head.node == stranger.node_id
    with pytest.raises(HearthNetError, match="is not in the community"):
        verify_proof(written(tmp_path, [head, line]), roster)
    # The node says what the caller did not sign: neither its entry nor its head helps.
    lied = msgspec.structs.replace(audit_chain.read(began), frame=ids.b64(b"no frame"))
    line, place = audit_chain.write(lied, ChainPosition(), mesh.identity)
    head = audit_chain.head(mesh.identity, mesh.identity.node_id, place, 1, proves=[line])
    file = written(tmp_path, [head, line])
    with pytest.raises(HearthNetError, match="entry 1: the caller's frame proves nothing"):
        verify_proof(file)


@pytest.mark.req("AUDIT-13", "ATTACK-33")
def test_a_node_that_lies_writes_nothing_to_the_terminal_of_who_verifies(tmp_path: Path) -> None:
    node, escape = Identity.generate(), "blake3:\x1b[2J\nproven: everything"
    decided = AuditEntry(kind="decided", call="x", **entry_fields(node, 0))
    line, _ = audit_chain.write(decided, ChainPosition(), node)
    head = audit_chain.head(node, node.node_id, ChainPosition(9, escape), 1, proves=[line])
    with pytest.raises(HearthNetError, match="a hash that is none"):
        verify_proof(written(tmp_path, [head, line]))
    fields = {**entry_fields(node, 0), "frame": escape, "capability": escape}
    began = AuditEntry(kind="began", call="x", **fields)
    line, place = audit_chain.write(began, ChainPosition(), node)
    head = audit_chain.head(node, node.node_id, place, 1, proves=[line])
    shown = verify_proof(written(tmp_path, [head, line])).text()
    assert all(text.isprintable() for text in shown)
    assert not any("proven: everything" in text for text in shown if "has only" in text)
    assert any("this proof has no end of it" in text for text in shown)


@pytest.mark.req("AUDIT-12")
def test_a_line_without_an_end_is_not_read(here: Here, shell: Shell, exported: Lines, tmp_path: Path) -> None:
    file = written(tmp_path, [*exported[:2], b"x" * 2 * _MEGABYTE])
    assert here("audit", "verify", file, "--roster", _roster(shell)) == 2
    assert "has a line of over 1048576 bytes" in here.err


@pytest.mark.req("AUDIT-12")
def test_an_export_that_is_cut_says_where_to_go_on(
    here: Here, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def cut(home: Any, file: Path, part: Part, progress: Callable[[int, int], None]) -> Exported:
        progress(1, 2)
        return Exported(first=1, last=2, end=4)

    monkeypatch.setattr("hearthnet.cli.workflows.audit_trail.export_to", cut)
    go_on = "the log goes on with entry 3: export it with --from 3"
    assert here("audit", "export", tmp_path / "log") == 0
    assert here.out.splitlines()[-1] == go_on
    assert here("audit", "export", "-") == 0
    assert go_on in here.err
    assert here("audit", "export", tmp_path / "log", "--json") == 0
    assert json.loads(here.out)["more"]


@pytest.mark.req("AUDIT-11")
def test_what_was_not_verified_is_told(capsys: pytest.CaptureFixture[str], shell: Shell) -> None:
    roster, node = load_roster(shell.home / "community" / "roster.json"), Identity.generate()
    fields = {
        **entry_fields(node, 0),
        "kind": "removed",
        "call": "",
        "sequence": 9,
        "rule": "age",
        "count": 4,
    }
    point = AuditEntry(**fields)
    verdict = Verdict(node.node_id, 5, 5, 2, (), checkpoint=point)
    audit._print_verdict(verdict, roster)
    assert "entries 1 to 4 were removed" in capsys.readouterr().out
    audit._print_verdict(msgspec.structs.replace(verdict, checkpoint=None, part=True), roster)
    assert "entries 5 to 9; says nothing about others" in capsys.readouterr().out
