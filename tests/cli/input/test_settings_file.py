"""Settings as text: what cannot be read any more is not written."""

from __future__ import annotations

from pathlib import Path

import pytest

from hearthnet.cli.input import settings_file
from hearthnet.core.errors import HearthNetError
from hearthnet.core.home import Home


def test_what_would_not_be_read_as_settings_is_not_written(tmp_path: Path) -> None:
    home = Home(tmp_path)
    assert settings_file.text_of(home) == ""
    settings_file.write(home, '[node]\ndisplay_name = "Kitchen"\n')
    with pytest.raises(HearthNetError) as caught:
        settings_file.write(home, "[node\n")
    assert caught.value.code == "bad_request"
    assert "edit it by hand" in caught.value.message
    assert settings_file.text_of(home) == '[node]\ndisplay_name = "Kitchen"\n'
