"""What one process of a node has proved, the others take for proved; nobody else can make them believe it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from hearthnet.bus.session.keyring import VerificationCache
from hearthnet.core import ids
from hearthnet.protocol import frame as frames
from hearthnet.protocol.frame import FrameError
from tests.protocol.test_frame import ANNA, BERTA, said

FRAME = frames.signed(said(ANNA), b"{}", ANNA)


class Counted:
    """Marks that say what they were asked for."""

    def __init__(self, marks: VerificationCache) -> None:
        self.marks = marks
        self.added: list[bytes] = []

    def known(self, signer: str, frame: bytes) -> bool:
        """As those."""
        return self.marks.known(signer, frame)

    def add(self, signer: str, frame: bytes) -> None:
        """As those, and kept."""
        self.added.append(frame)
        self.marks.add(signer, frame)


@pytest.mark.req("BUS-64")
def test_the_processes_of_a_node_prove_a_frame_once(tmp_path: Path) -> None:
    own = Counted(VerificationCache(BERTA, tmp_path / "proved"))
    expected = frames.read_signed(FRAME, ANNA.node_id)
    assert _elsewhere(tmp_path) == "proved it"
    assert frames.read_signed(FRAME, ANNA.node_id, own) == expected
    assert own.added == [], "it takes the other process's word"
    (tmp_path / "proved").unlink()
    own = Counted(VerificationCache(BERTA, tmp_path / "proved"))
    assert frames.read_signed(FRAME, ANNA.node_id, own) == expected
    assert own.added == [FRAME]
    assert _elsewhere(tmp_path) == "knew it"
    assert (tmp_path / "proved").stat().st_mode & 0o777 == 0o600


_READER = """
import sys
from pathlib import Path
from hearthnet.bus.session.keyring import VerificationCache
from hearthnet.protocol import frame
from hearthnet.trust.keys import Identity

path, key, sender, data = sys.argv[1:]
marks = VerificationCache(Identity(bytes.fromhex(key)), Path(path))
known = marks.known(sender, bytes.fromhex(data))
frame.read_signed(bytes.fromhex(data), sender, marks)
sys.stdout.write("knew it" if known else "proved it")
"""


def _elsewhere(folder: Path) -> str:
    """What another process of Berta's node does, which is sent the frame too."""
    arguments = str(folder / "proved"), (bytes([2]) * 32).hex(), ANNA.node_id, FRAME.hex()
    return subprocess.run(
        [sys.executable, "-c", _READER, *arguments], capture_output=True, text=True, check=True
    ).stdout


@pytest.mark.req("BUS-64")
def test_a_mark_counts_for_one_frame_of_one_signer_and_one_node(tmp_path: Path) -> None:
    marks = VerificationCache(BERTA, tmp_path / "proved")
    frames.read_signed(FRAME, ANNA.node_id, marks)
    assert marks.known(ANNA.node_id, FRAME)
    assert not marks.known(BERTA.node_id, FRAME)
    assert not VerificationCache(ANNA, tmp_path / "proved").known(ANNA.node_id, FRAME), (
        "another node's marks are no word"
    )
    for place in range(0, len(FRAME), 7):
        changed = FRAME[:place] + bytes([FRAME[place] ^ 1]) + FRAME[place + 1 :]
        with pytest.raises(FrameError):
            frames.read_signed(changed, ANNA.node_id, marks)
    with pytest.raises(FrameError):
        frames.read_signed(FRAME, BERTA.node_id, marks)


@pytest.mark.req("BUS-64")
def test_a_file_that_is_damaged_cut_off_or_cannot_be_made_costs_a_proof(tmp_path: Path) -> None:
    path = tmp_path / "proved"
    marks = VerificationCache(BERTA, path)
    for damage in (os.urandom(1 << 16), b""):
        frames.read_signed(FRAME, ANNA.node_id, marks)
        assert marks.known(ANNA.node_id, FRAME)
        path.write_bytes(damage)
        assert not marks.known(ANNA.node_id, FRAME)
    marks.close()
    for without in (marks, VerificationCache(BERTA, tmp_path / "no folder" / "proved")):
        assert frames.read_signed(FRAME, ANNA.node_id, without)
        assert not without.known(ANNA.node_id, FRAME)
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    frames.read_signed(FRAME, ANNA.node_id, VerificationCache(BERTA, tmp_path / "link"))
    assert not (tmp_path / "elsewhere").exists()


@pytest.mark.req("BUS-64")
def test_marks_take_bounded_room_and_the_newest_are_kept(tmp_path: Path) -> None:
    marks = VerificationCache(BERTA, tmp_path / "proved")
    many = [b"frame %d" % number for number in range(5_000)]
    for frame in many:
        marks.add(ANNA.node_id, frame)
    assert (tmp_path / "proved").stat().st_size <= 32 * 1024
    assert sum(marks.known(ANNA.node_id, frame) for frame in many[-200:]) >= 199
    assert not any(marks.known(ANNA.node_id, b"other %d" % number) for number in range(200))


def _signature(content: bytes) -> bytes:
    return ids.b64(ANNA.sign("frame", content)).encode("ascii")
