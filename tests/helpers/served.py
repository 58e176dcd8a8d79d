"""A node as `hearthnet up` runs it: real services and gateway in processes of their own, a scripted model
behind the OpenAI API, and programs that come in with keys.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2

from hearthnet.core import ids
from tests.helpers.scripted_model import NAME, Say, ScriptedModel
from tests.helpers.shell import Shell
from tests.helpers.waiting import wait_for_sync

SETTINGS = """\
[server]
port = 0

[community]
port = 0

[services]
enabled = [{services}]

[gateway]
port = 0

[llm]
builtin = false
{llm}

{settings}

{model}
"""


@dataclass
class Served:
    """The running node."""

    shell: Shell
    model: ScriptedModel
    url: str = ""

    def ask(self, *turns: Say) -> list[Any]:
        """A question of its own, as messages, which the model answers with `turns`."""
        question = f"question {ids.new_ulid()}"
        self.model.turns[question] = list(turns)
        return [{"role": "user", "content": question}]

    def key(self, *scope: str) -> str:
        """The API key of a new program that may call `scope`."""
        name = f"program-{ids.new_ulid().lower()}"
        asked = [word for capability in scope for word in ("--scope", capability)]
        return str(self.shell.json("clients", "add", name, *asked, "--json")["secret"])

    def http(self, key: str) -> httpx2.Client:
        """A program's connection to the gateway."""
        headers = {"Authorization": f"Bearer {key}"}
        return httpx2.Client(base_url=self.url, headers=headers, trust_env=False, timeout=60)


@contextlib.contextmanager
def served(
    folder: Path, *services: str, settings: str = "", llm: str = "", shell: Shell | None = None
) -> Iterator[Served]:
    """A node in `folder` with these services besides `llm` and the gateway, once its model is offered.

    `llm` are lines of that table of the settings, `settings` further tables.
    """
    shell = shell or Shell(folder / "home")
    shell.home.mkdir(parents=True, exist_ok=True)
    enabled = ", ".join(f'"{service}"' for service in ("llm", *services))
    with ScriptedModel() as model:
        text = SETTINGS.format(services=enabled, settings=settings, llm=llm, model=model.config)
        (shell.home / "hearthnet.toml").write_text(text)
        with shell.node() as state:
            node = Served(shell, model)
            node.url = address(state)
            with node.http(node.key("llm.chat")) as http:
                wait_for_sync(lambda: NAME in http.get("/v1/models").text, 60, "the model")
            yield node


def address(state: dict[str, Any]) -> str:
    """Where the gateway of a ready node is."""
    return next(str(one["address"]) for one in state["services"] if one["name"] == "gateway")
