"""Decisions that take several signatures: proposed, passed on as text, submitted.

Each member signs on its own computer with its own key. The member whose signature completes the number
submits the decision there. The decisions are removals, demotions and invites.

See: docs/protocol/community.md#agreements, docs/protocol/community.md#proposal-text, docs/decisions/0046.
"""

from __future__ import annotations

import abc
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, Final

import msgspec

from hearthnet.cli.input import yes_no
from hearthnet.cli.input.local_call import call_local_node
from hearthnet.cli.input.member_lookup import KnownMember, members, resolve_member, roster_of
from hearthnet.cli.output import terminal
from hearthnet.cli.output.durations import format_time
from hearthnet.cli.output.text import counted, one_line
from hearthnet.core import ids
from hearthnet.core.errors import HearthNetError
from hearthnet.core.home import Home
from hearthnet.core.ids import new_ulid
from hearthnet.core.times import now_ms, rfc3339
from hearthnet.trust.community import events, proposals
from hearthnet.trust.community.proposals import Kind, Proposal
from hearthnet.trust.community.quorum import min_rank
from hearthnet.trust.community.replay import LEVELS

if TYPE_CHECKING:
    from hearthnet.trust.community.roster import Roster

_TEXT_BYTES: Final = 16_384
_SIGN_WITH: Final[dict[str, str]] = {
    events.REVOKED: "hearthnet revoke --sign",
    events.DEMOTED: "hearthnet members demote --sign",
    events.INVITED: "hearthnet invite sign",
}
"""The command with which the others sign, to be followed by the text."""


class Signer(abc.ABC):
    """The member at this computer, for one kind of decision."""

    event_type: ClassVar[Kind]
    capability: ClassVar[str]

    def __init__(self, home: Home, *, confirmed: bool, json: bool) -> None:
        """Load roster and key; `confirmed`: on the command line, `json`: JSON output."""
        from hearthnet.bus.session.keyring import load_identity

        self.home = home
        self.roster = roster_of(home)
        self._identity = load_identity(home.device_key)
        self._confirmed = confirmed
        self._json = json
        self._page: Callable[[dict[str, Any]], None] = terminal.json_page

    @abc.abstractmethod
    def known(self, proposal: Proposal) -> KnownMember:
        """Return the node that the proposal is about; raise if it can no longer be decided."""

    @abc.abstractmethod
    def question(self, proposal: Proposal, known: KnownMember) -> str:
        """Return the question to the member before it signs."""

    @abc.abstractmethod
    def call(self, proposal: Proposal) -> dict[str, Any]:
        """Return the input of the call, without client id and signatures."""

    @abc.abstractmethod
    def show(self, proposal: Proposal, output: dict[str, Any], known: KnownMember) -> None:
        """Print for a person that the decision has taken effect."""

    def sign(self, text: str) -> None:
        """Sign another member's proposal; submit it if that completes the signatures."""
        typed = sys.stdin.readline(_TEXT_BYTES) if text == "-" else text
        proposal = proposals.decode("".join(typed.split()))
        if proposal.event_type != self.event_type:
            other = _SIGN_WITH.get(proposal.event_type, "something that this version has no command for")
            raise HearthNetError("bad_request", f"the proposal is for: {other}")
        proposal.check(self.roster)
        self.decide(proposal)

    def decide(self, proposal: Proposal) -> None:
        """Sign after the person confirms; submit, or print the text to pass on.

        It is submitted if the signatures suffice and a node runs here.
        """
        from hearthnet.core.node_state import running_pid

        known = self.known(proposal)
        if known.node_id == self._identity.node_id:
            raise HearthNetError("bad_request", "no node decides about itself; ask the other members")
        signed = proposal.sign(self._identity)
        signers = signed.check(self.roster)
        if self._identity.node_id not in signers:
            raise HearthNetError(
                "unauthorized",
                f"this node's signature does not count: it takes level {self._level}; ask such a member",
            )
        yes_no.confirm(self._with_signers(proposal, known), confirmed=self._confirmed, option="--yes")
        needed = signed.needed(self.roster)
        if len(signers) >= needed and running_pid(self.home) is not None:
            self._submit(signed, known)
        else:
            self._hand_on(signed, len(signers), needed, known)

    @property
    def _level(self) -> str:
        return LEVELS[min_rank(self.roster.policy, self.event_type)]

    def _with_signers(self, proposal: Proposal, known: KnownMember) -> str:
        names = {one.node_id: str(one) for one in members(self.roster)}
        signers = [names.get(one.node_id, one_line(one.node_id)) for one in proposal.co_signers]
        question = self.question(proposal, known)
        return f"{question} Signed by {', '.join(signers)}." if signers else question

    def _submit(self, proposal: Proposal, known: KnownMember) -> None:
        others = [one for one in proposal.co_signers if one.node_id != self._identity.node_id]
        fields = {
            "client_id": proposal.client_id,
            **self.call(proposal),
            "co_signers": msgspec.to_builtins(others),
        }
        output = call_local_node(self.home, self.capability, fields)
        if self._json:
            self._page({"done": True, **output})
        else:
            self.show(proposal, output, known)

    def _hand_on(self, proposal: Proposal, signers: int, needed: int, known: KnownMember) -> None:
        text = proposals.encode(proposal)
        if self._json:
            self._page({"done": False, "proposal": text, "signatures": signers, "needed": needed})
            return
        terminal.line(text)
        sys.stdout.flush()
        command = f"{_SIGN_WITH[self.event_type]} TEXT"
        if signers >= needed:
            terminal.info(
                "not done yet: enough have signed, but no node runs here. Start it with: hearthnet up, or "
                f"hand the text above to a member whose node runs; then type there:\n{command}"
            )
            return
        terminal.info(
            f"not done yet: it takes {counted(needed - signers, 'more signature')}, of members with level "
            f"{self._level} other than {known.name}. Hand the text above round; each types on its own "
            f"computer:\n{command}"
        )


class CosignCommand(Signer):
    """A decision about a member of the community."""

    def propose(self, target: str, what: str) -> None:
        """Start a proposal; submit it if this node's signature suffices, else print its text."""
        self.decide(self.proposal(resolve_member(target, members(self.roster)).node_id, what))

    def proposal(self, node: str, what: str) -> Proposal:
        """Return a new proposal about `node`, not signed yet."""
        return Proposal(
            event_type=self.event_type,
            community_id=self.roster.community_id,
            target_node_id=node,
            what=what,
            client_id=new_ulid(),
        )

    def known(self, proposal: Proposal) -> KnownMember:
        return resolve_member(proposal.target_node_id, members(self.roster))


class Revoking(CosignCommand):
    """The removal of a member."""

    event_type = "community.member.revoked"
    capability = "community.revoke@1.0"

    def propose_line(self, target: str, what: str, *, with_invited: bool) -> None:
        """Propose to remove `target` and, if wanted, those who came by its invites, one proposal for each.

        Without `with_invited` the person is asked. A target that is out already stays out, and those who came
        by it can still follow.
        """
        gone = [KnownMember(one.node_id, "") for one in self.roster.revoked if with_invited]
        known = resolve_member(target, [*members(self.roster), *gone])
        invited = [one for one in members(self.roster) if one.node_id in self.roster.came_by(known.node_id)]
        pages: list[dict[str, Any]] = []
        if self._json:
            self._page = pages.append
        names = ", ".join(map(str, invited))
        if self.roster.member(known.node_id) is not None:
            self.decide(self.proposal(known.node_id, what))
        if invited and not self._json:
            terminal.info(f"came by invites of {known.name}, or of those whom it invited: {names}")
        if invited and not with_invited and not (self._confirmed or self._json):
            with_invited = yes_no.is_agreed(f"Put these {len(invited)} out as well?") is True
        elif with_invited:
            yes_no.confirm(f"Put out {names}?", confirmed=self._confirmed or not invited, option="--yes")
        taken = [self._remove_as_well(one, what, pages) if with_invited else _as_json(one) for one in invited]
        if self._json:
            terminal.json_page({**(pages[0] if pages else {"done": True}), "invited": taken})
        elif invited and not with_invited:
            terminal.info(f"these stay; to put them out: hearthnet revoke {known.node_id} --with-invited")

    def _remove_as_well(self, known: KnownMember, what: str, pages: list[dict[str, Any]]) -> dict[str, Any]:
        """Propose to remove `known`, which the person has confirmed; return the entry for scripts."""
        self._confirmed = True
        self.decide(self.proposal(known.node_id, what))
        return _as_json(known) | (pages.pop() if pages else {})

    def question(self, proposal: Proposal, known: KnownMember) -> str:
        name, why = one_line(self.roster.name), one_line(proposal.what)
        return f"Put {known} out of {name} ({why})? Only a new invite brings it back."

    def call(self, proposal: Proposal) -> dict[str, Any]:
        return {"target_node_id": proposal.target_node_id, "reason": proposal.what}

    def show(self, proposal: Proposal, output: dict[str, Any], known: KnownMember) -> None:
        terminal.line(f"{known} is put out; its connections are cut, and nobody takes its calls any more")


def _as_json(known: KnownMember) -> dict[str, Any]:
    return {"node_id": known.node_id, "display_name": known.display_name}


class Demoting(CosignCommand):
    """The demotion of a member."""

    event_type = "community.member.demoted"
    capability = "community.demote@1.0"

    def question(self, proposal: Proposal, known: KnownMember) -> str:
        return f"Make {known} {one_line(proposal.what)} in {one_line(self.roster.name)}?"

    def call(self, proposal: Proposal) -> dict[str, Any]:
        return {"target_node_id": proposal.target_node_id, "new_level": proposal.what}

    def show(self, proposal: Proposal, output: dict[str, Any], known: KnownMember) -> None:
        terminal.line(f"{known} is {one_line(proposal.what)} now")


_LONGEST_NAME: Final = 64


def proposal_for(roster: Roster, node: str, name: str, expires: int) -> Proposal:
    """Return the proposal to invite the node `node` (a full id), valid for `expires` seconds.

    Raises:
        HearthNetError: `bad_request` for an invalid node id, and for a name that is too long.
    """
    ids.public_key(node)
    if len(name) > _LONGEST_NAME:
        raise HearthNetError("bad_request", f"a name has at most {_LONGEST_NAME} characters")
    return Proposal(
        event_type="community.member.invited",
        community_id=roster.community_id,
        target_node_id=node,
        what=name,
        client_id=new_ulid(),
        expires_at=(now_ms() // 1000 + expires) * 1000,
        recalls=roster.revocation_of(node),
    )


class Inviting(Signer):
    """The invitation of a node."""

    event_type = "community.member.invited"
    capability = "community.invite@1.0"

    def known(self, proposal: Proposal) -> KnownMember:
        """Return the node that is invited.

        Raises:
            HearthNetError: `expired` if the invite would be over; `bad_request` if the node is a member
                already.
        """
        if proposal.expires_at <= now_ms():
            raise HearthNetError("expired", "the proposal has expired; ask for a new one")
        for one in members(self.roster):
            if one.node_id == proposal.target_node_id:
                raise HearthNetError("bad_request", f"{one} is a member already")
        return KnownMember(proposal.target_node_id, proposal.what)

    def question(self, proposal: Proposal, known: KnownMember) -> str:
        """Return the question, with the full id, since anyone can choose the name.

        It also says whether the node was removed before.
        """
        ends = format_time(proposal.expires_at, now_ms())
        question = f"Let {known.name} {known.node_id} join {one_line(self.roster.name)} until {ends}?"
        for removed in self.roster.revoked:
            if removed.node_id == known.node_id:
                return f"{question} It was put out ({one_line(removed.reason)}) and comes back by this."
        return question

    def call(self, proposal: Proposal) -> dict[str, Any]:
        named = {"display_name": proposal.what} if proposal.what else {}
        return {
            **named,
            "invitee_node_id": proposal.target_node_id,
            "expires_at": rfc3339(proposal.expires_at),
        }

    def show(self, proposal: Proposal, output: dict[str, Any], known: KnownMember) -> None:
        """Print the invite, as `invite create` does."""
        show_new(output, f"until {format_time(proposal.expires_at, now_ms())}")


def show_new(output: dict[str, Any], good: str) -> None:
    """Print a new invite as text and QR code, with instructions; `good` is its validity.

    The text may be one for a new device, which is used by another command.
    """
    from hearthnet.cli.output import qr
    from hearthnet.supervisor.nats.address import parse
    from hearthnet.trust.community import invites

    text = one_line(str(output["invite"]))
    is_for_device = text.startswith(invites.DEVICE_SCHEME)
    decode = invites.decode_device if is_for_device else invites.decode
    command = "device join" if is_for_device else "invite redeem"
    terminal.line(text)
    qr.show(text)
    sys.stdout.flush()
    terminal.info(
        f"good for one home, {good}. There, its node stopped: hearthnet {command}\n"
        f"take it back with: hearthnet invite withdraw {one_line(str(output['event_id']))}"
    )
    if parse(decode(text).address).on_loopback:
        terminal.info(
            "only homes on this computer can use it: to be reached by others, set host in [community] of "
            "hearthnet.toml, start the node again and make a new one"
        )
