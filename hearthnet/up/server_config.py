"""The configuration of the NATS server, as a function of the roster (wire.md, "Accounts and subjects").

Three accounts. `HN` is the bus, without JetStream, one user per member. `STORE` holds JetStream for this
operator's own processes. `SYS` answers the supervisor's questions about the server. Every user is a public
nkey: no secret is in the file, and there is no user for those who show none.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from hearthnet.trust.permissions import node_permissions
from hearthnet.trust.roster import Member

MAX_PAYLOAD: Final = 8 * 1024 * 1024
ANY_PORT: Final = -1


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """What the configuration depends on. `port` -1 lets the server choose; `ports` is where it says what it
    chose.
    """

    name: str
    port: int
    ports: Path
    jetstream: Path
    members: tuple[Member, ...]
    store_login: str
    system_login: str


def render(settings: ServerSettings) -> str:
    """The text of `server.conf`. Each setting of `jetstream` has its own line; the server misreads them
    otherwise.
    """
    users = "\n".join(_bus_user(member) for member in settings.members)
    return f"""\
# Written by `hearthnet up` at every start from the roster. Changes made here are lost.
server_name: {_quote(settings.name)}
listen: "127.0.0.1:{settings.port}"
ports_file_dir: {_quote(str(settings.ports))}
max_payload: {MAX_PAYLOAD}
jetstream {{
  store_dir: {_quote(str(settings.jetstream))}
  sync_interval: always
}}
accounts {{
  HN {{
    users: [
{users}
    ]
  }}
  STORE {{
    jetstream: enabled
    users: [
      {{ nkey: {settings.store_login} }}
    ]
  }}
  SYS {{
    users: [
      {{ nkey: {settings.system_login} }}
    ]
  }}
}}
system_account: SYS
"""


def _bus_user(member: Member) -> str:
    permissions = node_permissions(member.node_id)
    return f"""\
      {{
        nkey: {member.login}
        permissions {{
          publish: {{ allow: [{_list(permissions.publish)}] }}
          subscribe: {{ allow: [{_list(permissions.subscribe)}] }}
        }}
      }}"""


def _list(subjects: Iterable[str]) -> str:
    return ", ".join(_quote(subject) for subject in subjects)


def _quote(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
