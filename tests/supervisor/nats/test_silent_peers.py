"""Which connections of the kernel's tables count as silent. On real links: tests/homes/test_cuts.py."""

from __future__ import annotations

import ipaddress
import socket
import sys
from pathlib import Path

import pytest

from hearthnet.supervisor.nats import silent_peers as module
from hearthnet.supervisor.nats.silent_peers import RETRANSMISSIONS, Peer, silent_peers

pytestmark = pytest.mark.req("GATHER-13")
HEAD = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"


def row(peer: str, port: int, *, state: str = "01", timer: str = "01", count: int = RETRANSMISSIONS) -> str:
    """A row of the table as the kernel of this machine prints it."""
    raw = ipaddress.ip_address(peer).packed
    words = [int.from_bytes(raw[start : start + 4], sys.byteorder) for start in range(0, len(raw), 4)]
    remote = "".join(f"{word:08X}" for word in words)
    return (
        f"   0: {'0' * len(remote)}:1D4E {remote}:{port:04X} {state} 00000010:00000000 {timer}:00000014 "
        f"{count:08X}  1000        0 296749 2 0000000000000000 20 4 30 10 -1\n"
    )


@pytest.mark.parametrize(
    ("told", "address"),
    [
        ("10.77.0.1", "10.77.0.1"),
        ("2001:db8::7", "2001:db8::7"),
        ("::ffff:10.77.0.1", "10.77.0.1"),
    ],
)
def test_a_peer_that_acknowledges_nothing_is_silent(tmp_path: Path, told: str, address: str) -> None:
    table = tmp_path / "tcp"
    table.write_text(HEAD + row(told, 7422) + row("10.77.0.9", 80, count=RETRANSMISSIONS - 1))
    assert silent_peers([table, tmp_path / "none"]) == {Peer(address, 7422)}


@pytest.mark.parametrize(
    "other", [{"state": "0A"}, {"state": "02"}, {"timer": "04"}, {"timer": "02"}, {"timer": "00"}]
)
def test_a_peer_that_is_probed_or_connected_to_is_not(tmp_path: Path, other: dict[str, str]) -> None:
    """One that takes nothing more, since its process is busy, is probed, and acknowledges that."""
    table = tmp_path / "tcp"
    table.write_text(HEAD + row("10.77.0.1", 7422, **other))  # type: ignore[arg-type]
    assert silent_peers([table]) == set()


def test_a_connection_of_this_computer_is_read_from_its_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    """One on which nothing is sent, for which the marks of a silent one are changed."""
    monkeypatch.setattr(module, "RETRANSMISSIONS", 0)
    monkeypatch.setattr(module, "_RETRANSMITTING", "00")
    with socket.create_server(("127.0.0.1", 0)) as server:
        there = Peer(*server.getsockname())
        assert there not in silent_peers()
        with socket.create_connection(there):
            assert there in silent_peers()


def test_a_table_that_cannot_be_read_names_nobody(tmp_path: Path) -> None:
    table = tmp_path / "tcp"
    for text in ("", HEAD, HEAD + "   0: nothing\n", HEAD + row("10.77.0.1", 7422)[:40]):
        table.write_text(text)
        assert silent_peers([table]) == set()
