"""What a client is told of exceptions that no handler expects."""

from __future__ import annotations

from pathlib import Path

import pytest

from hearthnet.gateway.http.errors import as_hearthnet_error


@pytest.mark.req("HTTP-41")
def test_a_full_disk_is_no_error_of_the_gateway() -> None:
    with pytest.raises(OSError, match="No space") as raised:
        Path("/dev/full").write_bytes(b"x")
    told = as_hearthnet_error(raised.value)
    assert (told.code, told.message) == (
        "capacity_exceeded",
        "the disk of this node is full; make room, then repeat it",
    )


@pytest.mark.req("HTTP-41")
def test_of_any_other_exception_a_client_learns_its_id_alone(caplog: pytest.LogCaptureFixture) -> None:
    told = as_hearthnet_error(KeyError("secret"))
    assert told.code == "internal_error"
    assert "secret" not in told.message
    assert told.message.rpartition(" ")[2] in caplog.text
