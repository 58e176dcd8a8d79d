"""What takes the signatures of several: made by the first, handed round as a text, carried out by the last
(resolutions.md 71 and 72).

Each one signs on its own computer with its own key. The one whose signature makes it enough submits it there.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

import msgspec

from hearthnet.cli import terminal, yes
from hearthnet.cli.text import counted, one_line
from hearthnet.cli.who import Known, find, members
from hearthnet.errors import HearthNetError
from hearthnet.ids import new_ulid
from hearthnet.trust import community, cosign
from hearthnet.trust.cosign import Proposal

if TYPE_CHECKING:
    from hearthnet.home import Home

_TEXT_BYTES: Final = 16_384


class Kind(NamedTuple):
    """One thing that members decide together."""

    event_type: Literal["community.member.demoted", "community.member.revoked"]
    capability: str
    field: str
    """Where the call says what is proposed."""
    command: str


REVOKE: Final = Kind(community.REVOKED, "community.revoke@1.0", "reason", "hearthnet revoke")
DEMOTE: Final = Kind(community.DEMOTED, "community.demote@1.0", "new_level", "hearthnet members demote")


class Signer:
    """The member at this computer, deciding one kind of thing."""

    def __init__(self, home: Home, kind: Kind, *, given: bool, json: bool) -> None:
        """`given`: it has said yes on the command line; `json`: it is a script."""
        from hearthnet.bus.keyring import load_identity
        from hearthnet.cli.who import roster_of

        self._home = home
        self._kind = kind
        self._given = given
        self._json = json
        self._roster = roster_of(home)
        self._identity = load_identity(home.device_key)

    def propose(self, target: str, what: str) -> None:
        """Starts it: carried out at once where the own signature is enough, else the text to hand round."""
        known = find(target, members(self._roster))
        proposal = Proposal(
            event_type=self._kind.event_type,
            community_id=self._roster.community_id,
            target_node_id=known.node_id,
            what=what,
            client_id=new_ulid(),
        )
        self._decide(proposal, known)

    def sign(self, text: str) -> None:
        """Adds the own signature to what another proposed; carried out where that makes it enough."""
        typed = sys.stdin.readline(_TEXT_BYTES) if text == "-" else text
        proposal = cosign.decode("".join(typed.split()))
        if proposal.event_type != self._kind.event_type:
            other = REVOKE if proposal.event_type == REVOKE.event_type else DEMOTE
            raise HearthNetError("bad_request", f"the proposal is for: {other.command} --sign")
        cosign.check(proposal, self._roster)
        self._decide(proposal, find(proposal.target_node_id, members(self._roster)))

    def _decide(self, proposal: Proposal, known: Known) -> None:
        if known.node_id == self._identity.node_id:
            raise HearthNetError("bad_request", "no node decides about itself; ask the other members")
        signed = cosign.sign(proposal, self._identity)
        signers = cosign.check(signed, self._roster)
        if self._identity.node_id not in signers:
            raise HearthNetError(
                "unauthorized",
                "this node's signature does not count: it takes level trusted; ask such a member",
            )
        yes.demand(self._question(proposal, known), given=self._given, option="--yes")
        needed = cosign.needed(signed, self._roster)
        if len(signers) >= needed:
            self._submit(signed, known)
        else:
            self._hand_on(signed, len(signers), needed, known)

    def _question(self, proposal: Proposal, known: Known) -> str:
        community_name, what = one_line(self._roster.name), one_line(proposal.what)
        if self._kind is REVOKE:
            question = f"Put {known} out of {community_name} ({what})? Only a new invite brings it back."
        else:
            question = f"Make {known} {what} in {community_name}?"
        names = {one.node_id: str(one) for one in members(self._roster)}
        asked = [names.get(one.node_id, one_line(one.node_id)) for one in proposal.co_signers]
        return f"{question} Signed by {', '.join(asked)}." if asked else question

    def _submit(self, proposal: Proposal, known: Known) -> None:
        from hearthnet.cli.own import ask_own

        others = [one for one in proposal.co_signers if one.node_id != self._identity.node_id]
        given: dict[str, Any] = {
            "client_id": proposal.client_id,
            "target_node_id": proposal.target_node_id,
            self._kind.field: proposal.what,
            "co_signers": msgspec.to_builtins(others),
        }
        output = ask_own(self._home, self._kind.capability, given)
        if self._json:
            terminal.json_page({"done": True, **output})
        elif self._kind is REVOKE:
            terminal.line(f"{known} is put out; its connections are cut, and nobody takes its calls any more")
        else:
            terminal.line(f"{known} is {one_line(proposal.what)} now")

    def _hand_on(self, proposal: Proposal, signers: int, needed: int, known: Known) -> None:
        text = cosign.encode(proposal)
        if self._json:
            terminal.json_page({"done": False, "proposal": text, "signatures": signers, "needed": needed})
            return
        terminal.line(text)
        sys.stdout.flush()
        terminal.aside(
            f"not done yet: it takes {counted(needed - signers, 'more signature')}, of members with level "
            f"trusted other than {known.name}. Hand the text above round; each types on its own computer:\n"
            f"{self._kind.command} --sign TEXT"
        )
