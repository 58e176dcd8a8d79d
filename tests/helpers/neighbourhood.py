"""A home with neighbours: members whose keys and rosters are there before the node first starts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from hearthnet.bus.session import keyring
from hearthnet.core.home import Home
from hearthnet.supervisor.nats import home_setup
from hearthnet.trust.community import roster as rosters
from hearthnet.trust.community.roster import Roster
from hearthnet.trust.keys import Identity
from tests.helpers.members import take_in

_SETTINGS = """\
[node]
display_name = "founder"

[server]
port = 0

[services]
enabled = [{services}]

[gateway]
{gateway}

[llm]
builtin = false
"""


Past = Callable[[Roster, Mapping[str, Identity]], Roster]
"""Returns the roster with what its members, whose keys it gets by name, did before the node first starts."""


@dataclass(frozen=True)
class Neighbourhood:
    """The founder's home, and the homes of members that its roster names."""

    founder: Home
    members: dict[str, Home]

    def home(self, name: str) -> Home:
        """The home of one of them."""
        return self.members[name]


def settle_in(
    folder: Path,
    *names: str,
    services: tuple[str, ...],
    settings: str = "",
    gateway: bool = False,
    inviters: Mapping[str, str] | None = None,
    past: Past | None = None,
) -> Neighbourhood:
    """Founds a community in `folder` and takes in a member for each of `names`; `settings` are the founder's
    further ones, as TOML. `inviters` names who let in whom, where the founder did not.
    """
    home = Home.resolve(folder / "home")
    home_setup.make_folders(home)
    enabled = ", ".join(f'"{service}"' for service in services)
    door = "port = 0" if gateway else "enabled = false"
    home.config_file.write_text(f"{_SETTINGS.format(services=enabled, gateway=door)}\n{settings}")
    prepared = home_setup.prepare(home, lambda line: None)
    roster, members = prepared.roster, {name: Home.resolve(folder / name) for name in names}
    keys = {"founder": prepared.identity}
    for name, guest in members.items():
        keys[name] = keyring.create_identity(guest.device_key)
        roster = take_in(roster, keys[(inviters or {}).get(name, "founder")], keys[name], name)
    if past is not None:
        roster = past(roster, keys)
    home.roster.unlink()
    for place in (home, *members.values()):
        own = keyring.load_identity(place.device_key)
        keyring.write_new(place.roster, rosters.encode(rosters.seal(roster, own)))
    return Neighbourhood(home, members)
