"""The configuration of the NATS server, as a function of the roster.

There are three accounts. `HN` is the bus, without JetStream, with one user per member and open invite; leaf
links bridge this account and no other. Operators log in to it too, and can query the running services
there. `STORE` holds JetStream for this home's own processes. `SYS` serves the supervisor's requests about
the server. Every user is a public nkey: no secret is in the file, and there is no user without a key.

See: docs/protocol/subjects.md#server-settings, docs/protocol/subjects.md#permissions.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from hearthnet.core.errors import HearthNetError
from hearthnet.supervisor.nats.address import Address
from hearthnet.trust.authorization.permissions import (
    OPERATOR_INBOX,
    Permissions,
    invite_permissions,
    node_permissions,
    operator_permissions,
    peer_permissions,
)
from hearthnet.trust.community.roster import Member
from hearthnet.trust.keys import Login, is_login

MAX_PAYLOAD: Final = 8 * 1024 * 1024
ANY_PORT: Final = -1
# A silent loss is noticed after 12-20 s (docs/protocol/subjects.md#server-settings). The server has one
# interval for leaf links and clients alike, and a client answers behind all that waits for it (0214).
_PINGS: Final = "ping_interval: 5s\nping_max: 2"


class BusLogin(NamedTuple):
    """A login of the bus: the id that determines its permissions, and the public nkey."""

    node_id: str
    login: str


class Certificate(NamedTuple):
    """The PEM files of a server's certificate and its private key."""

    certificate: Path
    key: Path


@dataclass(frozen=True, slots=True)
class LeafListener:
    """The listener for other homes' servers.

    With `port` -1 the server chooses one; `tls` is None on loopback only.
    """

    host: str
    port: int
    tls: Certificate | None = None

    def __post_init__(self) -> None:
        if self.tls is None and not Address(self.host, 0).on_loopback:
            raise HearthNetError("internal_error", f"a leaf listener on {self.host} needs TLS")


@dataclass(frozen=True, slots=True)
class LeafRemote:
    """The servers that this one links to, to one of them at a time, the first that answers.

    `login_file` is a file beside the configuration with the text of `login_line`, so that the secret seed is
    in a file of its own. `trusted` is the PEM file of the certificates to trust, None on loopback only.
    """

    addresses: tuple[Address, ...]
    login_file: str
    trusted: Path | None = None

    def __post_init__(self) -> None:
        beyond = [address for address in self.addresses if not address.on_loopback]
        if self.trusted is None and beyond:
            raise HearthNetError(
                "bad_request",
                f"{beyond[0]} is beyond this computer, and the invite names no certificate for it; ask "
                "for a new invite from a home that listens there",
            )


@dataclass(frozen=True, slots=True)
class DoorRoutes:
    """The links of a door to the others, at `routes`; it takes theirs at `host` and `port`.

    Both ends show a certificate that one in the PEM file `trusted` has signed, of a key in `pins` (SHA-256 of
    the public key, in hex).
    """

    host: str
    port: int
    tls: Certificate
    trusted: Path
    pins: tuple[str, ...]
    routes: tuple[Address, ...]


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """The variables of the configuration.

    With `port` -1 the server chooses one, and writes it to the folder `ports`. `own` is the id of the node
    that owns the server: only that node receives and answers requests of operators. Its processes have a
    second connection under `peer_login`. A door, and the temporary server of the holder of an invite, have no
    `jetstream`, and need no `store_login`. A door has `routes`, and a `system_account` whose name is secret.
    """

    name: str
    port: int
    ports: Path
    jetstream: Path | None
    members: tuple[Member | BusLogin, ...]
    store_login: str
    system_login: str
    invites: tuple[BusLogin, ...] = ()
    listener: LeafListener | None = None
    remote: LeafRemote | None = None
    own: str = ""
    peer_login: str = ""
    operators: tuple[str, ...] = ()
    routes: DoorRoutes | None = None
    system_account: str = "SYS"


def login_line(login: Login) -> bytes:
    """Return the content of a remote's `login_file`.

    It has the seed of a login, never that of an identity.
    """
    return b"nkey: " + login.seed + b"\n"


def render(settings: ServerSettings) -> str:
    """Return the text of `server.conf`."""
    users = "\n".join([*_bus_users(settings), *_operators(settings)])
    return f"""\
# Written by HearthNet from the roster, at every start and on change. Changes made here are lost.
server_name: {_quote(settings.name)}
listen: "127.0.0.1:{settings.port}"
ports_file_dir: {_quote(str(settings.ports))}
max_payload: {MAX_PAYLOAD}
{_PINGS}
{_jetstream(settings.jetstream)}accounts {{
  HN {{
    users: [
{users}
    ]
  }}
{_store(settings)}  {settings.system_account} {{
    users: [
      {{ nkey: {settings.system_login} }}
    ]
  }}
}}
system_account: {settings.system_account}
{_cluster(settings.routes)}{_leafnodes(settings.listener, settings.remote)}"""


def _jetstream(folder: Path | None) -> str:
    """Return the section `jetstream`; each setting has its own line, since the server misreads others."""
    if folder is None:
        return ""
    return f"""\
jetstream {{
  store_dir: {_quote(str(folder))}
  sync_interval: always
}}
"""


def _store(settings: ServerSettings) -> str:
    if settings.jetstream is None:
        return ""
    return f"""\
  STORE {{
    jetstream: enabled
    users: [
      {{ nkey: {settings.store_login} }}
    ]
  }}
"""


def _bus_users(settings: ServerSettings) -> Iterator[str]:
    """Yield every login once.

    The server refuses a configuration that names one twice, and keeps its old one.
    """
    seen = {settings.store_login, settings.system_login}
    entries = [
        (member.login, node_permissions(member.node_id, at_home=member.node_id == settings.own))
        for member in settings.members
    ]
    if settings.peer_login:
        entries.append((settings.peer_login, peer_permissions(settings.own)))
    entries += [(invite.login, invite_permissions(invite.node_id)) for invite in settings.invites]
    for login, allowed in entries:
        if login not in seen and is_login(login):
            seen.add(login)
            yield _bus_user(login, allowed)


def _operators(settings: ServerSettings) -> Iterator[str]:
    """Yield the users of operators, for clients only.

    Their logins are made at this home, each once.
    """
    for login in settings.operators:
        yield _bus_user(login, operator_permissions(), '\n        allowed_connection_types: ["STANDARD"]')


def _bus_user(login: str, permissions: Permissions, more: str = "") -> str:
    unheard = f", deny: [{_list(permissions.unheard)}]" if permissions.unheard else ""
    return f"""\
      {{
        nkey: {login}{more}
        permissions {{
          publish: {{ allow: [{_list(permissions.publish)}] }}
          subscribe: {{ allow: [{_list(permissions.subscribe)}]{unheard} }}
        }}
      }}"""


def _cluster(routes: DoorRoutes | None) -> str:
    """Return the section `cluster` of a door.

    One connection for each route, since those of a pool give the system account one of its own. Subjects
    other than the bus's are neither announced to other doors nor sent there, so that none of them knows the
    name of the system account, without which it can send nothing to it.
    """
    if routes is None:
        return ""
    return f"""\
cluster {{
  name: hearthnet
  host: {_quote(routes.host)}
  port: {routes.port}
  no_advertise: true
  compression: off
  pool_size: -1
  permissions {{
    import: {{ allow: ["hn.>"] }}
    export: {{ allow: ["hn.>"] }}
  }}
  tls {{
    cert_file: {_quote(str(routes.tls.certificate))}
    key_file: {_quote(str(routes.tls.key))}
    ca_file: {_quote(str(routes.trusted))}
    verify: true
    pinned_certs: [{_list(routes.pins)}]
    timeout: 5
  }}
  routes: [{_list(f"nats-route://{address}" for address in routes.routes)}]
}}
"""


def _leafnodes(listener: LeafListener | None, remote: LeafRemote | None) -> str:
    """Return the section `leafnodes`.

    There is no compression, since frames are boxed. A remote bridges only the account `HN`, and excludes the
    server's reports about itself and the answers to operators: each home serves its own operators only.
    """
    parts = ["  compression: off"]
    if listener is not None:
        parts.append(f"  host: {_quote(listener.host)}\n  port: {listener.port}\n  no_advertise: true")
        if listener.tls is not None:
            parts.append(
                f"  tls {{\n    cert_file: {_quote(str(listener.tls.certificate))}\n"
                f"    key_file: {_quote(str(listener.tls.key))}\n"
                "    handshake_first: true\n    timeout: 5\n  }"
            )
    if remote is not None:
        parts.append(_remote(remote))
    body = "\n".join(parts)
    return f"leafnodes {{\n{body}\n}}\n"


def _remote(remote: LeafRemote) -> str:
    tls = ""
    if remote.trusted is not None:
        tls = (
            f"      tls {{\n        ca_file: {_quote(str(remote.trusted))}\n"
            "        handshake_first: true\n        timeout: 5\n      }\n"
        )
    return f"""\
  remotes: [
    {{
      urls: [{_list(f"nats-leaf://{address}" for address in remote.addresses)}]
      account: HN
      include './{remote.login_file}'
      deny_imports: ["$SYS.>", "$JS.>", "$SRV.>", "{OPERATOR_INBOX}.>"]
      deny_exports: ["$SRV.>", "{OPERATOR_INBOX}.>"]
      ignore_discovered_servers: true
      no_randomize: true
{tls}    }}
  ]"""


def _list(subjects: Iterable[str]) -> str:
    return ", ".join(_quote(subject) for subject in subjects)


def _quote(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
