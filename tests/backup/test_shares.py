"""The helpers' key in three shares, of which two make it again, in a process that ends."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys

import pytest

from hearthnet.backup import share_process, shares
from hearthnet.backup.shares import MAX_SHARE_LENGTH, combined, split
from hearthnet.core.errors import HearthNetError
from hearthnet.trust.keys import Identity

KEY = Identity(bytes(range(32)))


@pytest.mark.req("PERSON-43")
def test_any_two_of_three_shares_make_the_key() -> None:
    parts = split(KEY)
    assert (len(parts), len(set(parts))) == (3, 3)
    assert all(len(one.split()) == 33 and len(one) <= MAX_SHARE_LENGTH for one in parts)
    for pair in itertools.permutations(parts, 2):
        assert combined(pair, KEY.node_id).seed == KEY.seed
    assert combined(parts, KEY.node_id).seed == KEY.seed
    assert set(split(KEY)).isdisjoint(parts)


@pytest.mark.req("PERSON-43", "ATTACK-80")
def test_one_share_or_strange_ones_make_nothing() -> None:
    parts, others = split(KEY), split(KEY)
    word, *rest = parts[1].split()
    for given in (
        parts[:1],
        (parts[0], parts[0]),
        (parts[0], others[1]),
        (parts[0], " ".join([*rest, word])),
        (parts[0], "not a share"),
        split(Identity.generate())[:2],
    ):
        with pytest.raises(HearthNetError) as refused:
            combined(given, KEY.node_id)
        assert refused.value.code == "bad_request"
    assert combined((parts[0], "a lie", parts[2]), KEY.node_id).seed == KEY.seed


@pytest.mark.req("PERSON-43")
def test_process_takes_the_secret_by_stdin_and_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """No argument, variable or file has it, and the library is loaded there alone."""
    ran: list[subprocess.CompletedProcess[str]] = []
    real = subprocess.run

    def recorded(command: list[str], **options: object) -> subprocess.CompletedProcess[str]:
        assert KEY.seed.hex() not in " ".join(command)
        assert "env" not in options
        done: subprocess.CompletedProcess[str] = real(command, **options)  # type: ignore[call-overload]
        ran.append(done)
        return done

    monkeypatch.setattr("hearthnet.backup.shares.subprocess.run", recorded)
    split(KEY)
    assert [one.returncode for one in ran] == [0]
    assert list(json.loads(ran[0].stdout)) == ["shares"]
    code = "import sys, hearthnet.backup.shares; print('shamir_mnemonic' in sys.modules)"
    assert real([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"


@pytest.mark.req("PERSON-43")
def test_failed_process_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hearthnet.backup.shares.sys.executable", "/bin/false")
    with pytest.raises(HearthNetError) as failed:
        shares.split(KEY)
    assert failed.value.code == "internal_error"


@pytest.mark.req("PERSON-43")
def test_answer_has_the_shares_or_the_fault() -> None:
    parts = share_process.answer({"seed": KEY.seed.hex()})["shares"]
    assert share_process.answer({"shares": parts[1:]}) == {"seed": KEY.seed.hex()}
    assert list(share_process.answer({"shares": parts[:1]})) == ["error"]
