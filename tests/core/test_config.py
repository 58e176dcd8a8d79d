"""The home's layout and the settings.

See: docs/operations.md#what-lies-where.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from hearthnet.core.config import Config, LlmConfig, ModelConfig, NodeConfig
from hearthnet.core.config_loader import DEFAULT_CONFIG, line_of, load_config, parse_config
from hearthnet.core.errors import HearthNetError
from hearthnet.core.home import Home

FILE = Path("hearthnet.toml")


@pytest.mark.req("UP-12")
def test_the_commented_settings_are_the_defaults() -> None:
    assert parse_config(DEFAULT_CONFIG, FILE) == Config()


@pytest.mark.req("UP-12")
def test_what_is_commented_out_would_be_accepted() -> None:
    examples = "\n".join(line.removeprefix("# ") for line in DEFAULT_CONFIG.splitlines() if _is_setting(line))
    config = parse_config(examples, FILE)
    services = ("auth", "llm", "rag", "market", "mesh", "file", "embed", "trans", "mcp")
    assert config.services.enabled == services
    assert [(model.kind, model.name) for model in config.llm.models] == [("ollama", "qwen3-8b")]
    assert [(model.kind, model.name) for model in config.embed.models] == [("ollama", "nomic-embed-text")]
    assert [(server.name, len(server.read_only)) for server in config.mcp.servers] == [("notes", 2)]


def _is_setting(line: str) -> bool:
    text = line.removeprefix("# ")
    return text.startswith("[") or " = " in text


@pytest.mark.req("UP-12")
def test_settings_are_read_from_the_home(tmp_path: Path) -> None:
    home = Home(tmp_path)
    assert load_config(home) == Config()
    home.config_file.write_text(
        '[node]\ndisplay_name = "kitchen"\n[llm]\nbuiltin = false\n'
        '[[llm.models]]\nkind = "openai"\nname = "big"\nurl = "http://127.0.0.1:1/v1"\nmodel = "m"\n'
    )
    model = ModelConfig("openai", "big", "http://127.0.0.1:1/v1", "m")
    assert load_config(home) == Config(
        node=NodeConfig("kitchen"), llm=LlmConfig(builtin=False, models=(model,))
    )


@pytest.mark.req("UP-13", "GATE-16")
@pytest.mark.parametrize(
    ("origin", "fits"),
    [
        ("https://kitchen.example:8443", True),
        ("chrome-extension://abcdefghijklmnopabcdefghijklmnop", True),
        ("app://*", True),
        ("*", False),
        ("https://*", False),
        ("https://*.example", False),
        ("app://*.md", False),
        ("https://kitchen.example/", False),
        ("null", False),
    ],
)
def test_origin_is_exact_or_all_of_a_scheme_of_its_own(origin: str, fits: bool) -> None:
    text = f'[gateway]\norigins = ["{origin}"]\n'
    if fits:
        assert parse_config(text, FILE).gateway.origins == (origin,)
    else:
        with pytest.raises(HearthNetError, match="as a browser writes it"):
            parse_config(text, FILE)


@pytest.mark.req("UP-13")
@pytest.mark.parametrize(
    ("text", "line", "reason"),
    [
        ("[server]\n\nprt = 1\n", 3, "there is no setting server.prt"),
        ("colour = 'red'\n", 1, "there is no setting colour"),
        ("[server]\nport = 'a'\n", 2, "server.port: Expected `int`, got `str`"),
        ("[server]\nport = 70000\n", 2, "server.port: Expected `int` <= 65535"),
        ("server.port = 'a'\n", 1, "server.port: Expected `int`, got `str`"),
        ("[services]\nenabled = ['a', 3]\n", 2, "services.enabled.1: Expected `str`, got `int`"),
        ("[node]\n[llm\n", 2, "Expected ']' at the end of a table declaration"),
        (
            "[[llm.models]]\nkind='openai'\nname='a'\nurl='u'\nmodel='m'\n[[llm.models]]\nkind='x'\n",
            7,
            "llm.models.1.kind: Invalid enum value 'x'",
        ),
        ("\n[[llm.models]]\nkind='openai'\n", 2, "llm.models.0: Object missing required field `name`"),
    ],
)
def test_damage_is_named_with_its_line(tmp_path: Path, text: str, line: int, reason: str) -> None:
    home = Home(tmp_path)
    home.config_file.write_text(text)
    with pytest.raises(HearthNetError) as caught:
        load_config(home)
    remedy = "mend it, or move it away and a new one is written"
    assert caught.value.message == f"{home.config_file}: line {line}: {reason}; {remedy}"
    assert caught.value.details == {"path": str(home.config_file), "line": line}
    assert caught.value.exit_status == 2
    assert home.config_file.read_text() == text


@pytest.mark.req("UP-13")
def test_damage_without_a_line_names_the_file(tmp_path: Path) -> None:
    home = Home(tmp_path)
    home.config_file.mkdir()
    with pytest.raises(
        HearthNetError, match=r"hearthnet\.toml: cannot be read: Is a directory; .*move it away"
    ):
        load_config(home)
    home.config_file.rmdir()
    home.config_file.write_text("a = '''")
    with pytest.raises(HearthNetError, match=r"hearthnet\.toml: Expected .* \(at end of document\); mend it"):
        load_config(home)


@pytest.mark.req("UP-13")
@pytest.mark.parametrize(
    "content", [b"\xff\xfe\x00", b"\x7fELF\x02\x01\x00\x00\xc0", b"port = 1\x00", b"\x00\x01"]
)
def test_settings_that_are_no_text_are_said_to_be_so(tmp_path: Path, content: bytes) -> None:
    home = Home(tmp_path)
    home.config_file.write_bytes(content)
    with pytest.raises(HearthNetError) as caught:
        load_config(home)
    message = caught.value.message
    assert message.startswith(f"{home.config_file}: this is no text")
    assert message.endswith("; mend it, or move it away and a new one is written")
    assert message.isprintable()
    assert caught.value.exit_status == 2
    assert home.config_file.read_bytes() == content


def test_a_line_is_found_by_the_closest_table() -> None:
    assert line_of("[a]\nb = 1\n", ("a", "c")) == 1
    assert line_of("[a]\nb = 1\n", ("c",)) is None
    assert line_of("", ()) is None


@pytest.mark.req("UP-14")
def test_the_home_is_the_one_given_else_of_the_environment_else_the_users(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEARTHNET_HOME", str(tmp_path / "env"))
    assert Home.resolve(tmp_path / "given").path == tmp_path / "given"
    assert Home.resolve().path == tmp_path / "env"
    monkeypatch.chdir(tmp_path)
    assert Home.resolve(Path("here")).path == tmp_path / "here"
    monkeypatch.delenv("HEARTHNET_HOME")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("HOME", str(tmp_path))
    assert Home.resolve().path == tmp_path / "data" / "hearthnet"
    monkeypatch.delenv("XDG_DATA_HOME")
    assert Home.resolve().path == tmp_path / ".local" / "share" / "hearthnet"


@pytest.mark.req("UP-14")
def test_everything_lies_inside_the_home(tmp_path: Path) -> None:
    home = Home(tmp_path)
    names = [name for name in vars(Home) if not name.startswith("_") and name != "path"]
    named = [name for name in names if isinstance(getattr(home, name), Path)]
    assert {"community_key", "roster", "jetstream", "state"} <= set(named)
    paths = [*(getattr(home, name) for name in named), home.service("rag"), home.log("rag")]
    assert [path for path in paths if tmp_path not in path.parents] == []
    assert len(set(paths)) == len(paths), "each has a place of its own"
    assert home.log("rag").name == "rag.log"
