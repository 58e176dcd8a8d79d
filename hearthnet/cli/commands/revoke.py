"""`hearthnet revoke`: removes a member from the community.

See: docs/protocol/community.md#removals, docs/protocol/community.md#agreements.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click

from hearthnet.cli.input.options import common_options

if TYPE_CHECKING:
    from hearthnet.core.home import Home

_REASONS: Final = ("compromised", "inactive", "policy_violation", "other")


@click.command("revoke")
@click.argument("node", required=False)
@click.option("--reason", type=click.Choice(_REASONS), default="other", show_default=True)
@click.option(
    "--sign", "proposal", metavar="TEXT", help="Agree to what another member proposed; - reads stdin."
)
@click.option("--yes", "given", is_flag=True, help="Do not ask.")
@common_options
def command(node: str | None, reason: str, proposal: str | None, given: bool, home: Home, json: bool) -> None:
    """Put a member out of the community.

    NODE is its name or id. Its connections are cut within seconds, and the other members refuse its calls. If
    the community requires several signatures, this prints a text for the others to sign.

    \b
    hearthnet revoke Kitchen --reason compromised
    """
    from hearthnet.cli.workflows import cosigning

    if (node is None) == (proposal is None):
        raise click.UsageError("name the member, or pass --sign and the text of a proposal")
    signer = cosigning.Revoking(home, given=given, json=json)
    if proposal is not None:
        signer.sign(proposal)
    elif node is not None:
        signer.propose(node, reason)
