"""Where a run can be struck, and what is killed there (docs/tools.md, "Exactly once, counted").

A step is a place in one process; what is killed there is the executor, the provider or the server. Steps of
the executor that save are named after what makes the run worth saving.
"""

from __future__ import annotations

from typing import Final, Literal

Victim = Literal["executor", "provider", "server"]
VICTIMS: Final[tuple[Victim, ...]] = ("executor", "provider", "server")

ASKING: Final = "the model is asked"
TALKING: Final = "the model talks"
ASKED: Final = "a person is asked"
SAYING: Final = "a yes here, unwritten"
SAID: Final = "a yes here, written"
SENDING: Final = "an effect is sent"
ANSWERED: Final = "the answer is back"
SAVES: Final = ("a question", "a claim", "an outcome", "a suspension", "the end")
"""What makes a run worth saving."""

RECEIVED: Final = "received"
BEGAN: Final = "on record as begun"
APPENDING: Final = "before the effect"
APPENDED: Final = "after the effect"
CONCLUDING: Final = "before its end is on record"
CONCLUDED: Final = "before the answer"
REPLIED: Final = "after the answer"

DECIDING: Final = "a decision elsewhere, unwritten"
DECIDED: Final = "a decision elsewhere, written"


UNSAVED: Final = ", unsaved"


def saving(what: str) -> str:
    """The step before a save is sent."""
    return what + UNSAVED


def saved(what: str) -> str:
    """The step after it is on the disk."""
    return f"{what}, saved"


EXECUTOR: Final = (
    ASKING,
    TALKING,
    *(step(what) for what in SAVES for step in (saving, saved)),
    ASKED,
    SAYING,
    SAID,
    SENDING,
    ANSWERED,
)
PROVIDER: Final = (RECEIVED, BEGAN, APPENDING, APPENDED, CONCLUDING, CONCLUDED, REPLIED)
CLIENT: Final = (DECIDING, DECIDED)
STEPS: Final = EXECUTOR + PROVIDER + CLIENT
STRIKES: Final = tuple((step, victim) for step in STEPS for victim in VICTIMS)
"""Every combination of a step and what is killed there."""
