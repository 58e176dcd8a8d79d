"""`make persons [QUESTIONS=n] [SEED=n]`: carries the campaign out and writes build/persons.json.

Exit status 1 where something of one person reached another.
"""

from __future__ import annotations

import sys

from tests.helpers.campaigns import carry_out
from tests.persons.campaign import Campaign

if __name__ == "__main__":
    sys.exit(carry_out(Campaign, "persons.json", "questions", 2000))
