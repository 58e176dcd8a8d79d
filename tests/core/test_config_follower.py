"""Settings followed while a process runs."""

from __future__ import annotations

from contextlib import aclosing
from pathlib import Path

import pytest

from hearthnet.core import config_follower
from hearthnet.core.config_follower import ConfigFollower
from hearthnet.core.home import Home


def follower(folder: Path) -> ConfigFollower[int]:
    """A follower of the port of the server."""
    return ConfigFollower(Home(folder), "the ports", lambda config: config.server.port)


def test_an_invalid_file_is_named_as_a_problem_until_it_is_mended(tmp_path: Path) -> None:
    followed = follower(tmp_path)
    Home(tmp_path).config_file.write_text("[server]\nport = 'x'\n")
    assert followed.read() is None
    assert followed.problem.startswith("the ports stay as they were: ")
    assert "line 2" in followed.problem
    Home(tmp_path).config_file.write_text("[server]\nport = 4223\n")
    assert (followed.read(), followed.problem) == (4223, "")


@pytest.mark.asyncio
async def test_each_change_of_the_file_is_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config_follower, "LOOK_SECONDS", 0.01)
    file = Home(tmp_path).config_file
    async with aclosing(follower(tmp_path).changes()) as changes:
        file.write_text("[server]\nport = 4223\n")
        assert await anext(changes) == 4223
        file.write_text("[server]\nport = true\n")
        assert await anext(changes) is None
        file.unlink()
        assert await anext(changes) == 4222
