"""Tasks with an owner."""

from __future__ import annotations

import asyncio

import pytest

from hearthnet.core import tasks
from hearthnet.core.tasks import TaskSet
from tests.helpers.waiting import wait_for


@pytest.mark.req("COMMLOG-11")
@pytest.mark.asyncio
async def test_work_that_is_kept_begins_again_after_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "_RESTART_SECONDS", 0.0)
    begun = list[int]()

    async def work() -> None:
        begun.append(len(begun))
        if len(begun) < 3:
            raise ValueError("unforeseen")
        await asyncio.Event().wait()

    owned = TaskSet()
    owned.keep(work, "work")
    await wait_for(lambda: len(begun) == 3, what="the third beginning")
    await owned.close()
    assert begun == [0, 1, 2]
