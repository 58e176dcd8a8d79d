"""The mark of a restored home: what may be older than its restore."""

from __future__ import annotations

from pathlib import Path

import pytest

from hearthnet.core.canonical_json import derived_id
from hearthnet.core.errors import HearthNetError
from hearthnet.core.home import Home
from hearthnet.core.ids import new_ulid
from hearthnet.core.restore_mark import RestoreMark, read_mark, write_mark

DAY = 24 * 60 * 60 * 1000
TIME = 1_800_000_000_000
MARK = RestoreMark("01M878VK7NM49ANFGTBNZZ7D5M", TIME, TIME + DAY)


@pytest.mark.req("BACKUP-9")
def test_mark_is_read_as_written(tmp_path: Path) -> None:
    home = Home(tmp_path)
    assert read_mark(home) is None
    write_mark(home, MARK)
    assert read_mark(home) == MARK
    home.restored.write_text("{")
    with pytest.raises(HearthNetError, match="is damaged"):
        read_mark(home)


@pytest.mark.req("BACKUP-9")
def test_keys_of_before_the_restore_are_older() -> None:
    assert MARK.is_key_older(new_ulid(TIME - DAY))
    assert MARK.is_key_older(new_ulid(TIME + DAY))
    assert not MARK.is_key_older(new_ulid(TIME + DAY + 1))
    assert not MARK.is_key_older("")
    derived = [derived_id("client", "run", str(number)) for number in range(2_000)]
    assert sum(map(MARK.is_key_older, derived)) <= 2


@pytest.mark.req("BACKUP-9")
def test_times_of_before_the_restore_are_older() -> None:
    assert MARK.may_be_older(TIME + 2 * DAY, TIME)
    assert MARK.may_be_older(TIME + DAY)
    assert not MARK.may_be_older(TIME + DAY + 1, 0)
    assert not MARK.may_be_older()
