"""Homes of one community as they lie on the disk: keys and rosters, made without a server."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from hearthnet.bus.session import keyring
from hearthnet.core.files import write_whole
from hearthnet.core.home import Home
from hearthnet.core.times import now_ms
from hearthnet.supervisor.nats import home_setup
from hearthnet.trust.community import commands
from hearthnet.trust.community import roster as rosters
from hearthnet.trust.community.events import CommunityEvent, Level
from hearthnet.trust.community.roster import Roster
from hearthnet.trust.keys import Identity
from tests.helpers.members import DAY_MS, raise_to, take_in

_SETTINGS = """\
[node]
display_name = "{name}"

[server]
port = 0

[community]
port = 0

[gateway]
enabled = false

[services]
enabled = {services}
"""


@dataclass
class Household:
    """The founder's home, and those of the others by name; all hold the same roster."""

    founder: Home
    others: dict[str, Home]
    roster: Roster

    def __getitem__(self, name: str) -> Home:
        return self.others[name]

    def key(self, name: str = "") -> Identity:
        """The key of one of them, of the founder without a name."""
        return keyring.load_identity((self.others[name] if name else self.founder).device_key)

    def happen(self, *events: CommunityEvent) -> None:
        """All homes learn of `events`."""
        self.roster = rosters.merge(self.roster, events)
        for home in (self.founder, *self.others.values()):
            identity = keyring.load_identity(home.device_key)
            write_whole(home.roster, rosters.encode(rosters.seal(self.roster, identity)))

    def invite(self, name: str, hours: int = 24) -> CommunityEvent:
        """An open invite of the founder's."""
        now = now_ms()
        expires = now + hours * DAY_MS // 24
        event = commands.CommunityAuthor(self.roster, self.key()).invite(
            Identity.generate(), display_name=name, expires_at=expires, now_ms=now
        )
        self.happen(event)
        return event

    def revoke(self, name: str) -> None:
        """The founder puts `name` out, with the signatures of nobody else."""
        self.happen(
            commands.CommunityAuthor(self.roster, self.key()).revoke(
                self.key(name).node_id, "other", client_id=f"revoke {name}", now_ms=now_ms()
            )
        )


def make_home(path: Path, name: str, services: str = "[]") -> Home:
    """A home that has not started yet, with settings that suit a test."""
    home = Home.resolve(path)
    home_setup.make_folders(home)
    home.config_file.write_text(_SETTINGS.format(name=name, services=services))
    return home


def settle(
    folder: Path, levels: Mapping[str, Level], services: str = "[]", founder_name: str = "founder"
) -> Household:
    """A community founded in `folder`, with a member for each name of `levels`."""
    founder = make_home(folder / "founder", founder_name, services)
    roster = home_setup.prepare(founder, lambda line: None).roster
    own, others = keyring.load_identity(founder.device_key), {}
    for number, (name, level) in enumerate(levels.items()):
        home = others[name] = make_home(folder / f"home{number}", name, services)
        newcomer = keyring.create_identity(home.device_key)
        roster = take_in(roster, own, newcomer, name)
        if level != "member":
            roster = raise_to(roster, own, newcomer, level)
    household = Household(founder, others, roster)
    household.happen()
    return household
