"""`make homes [ROUNDS=n] [SEED=n]`: carries the rounds out and writes build/homes.json.

Exit status 1 where homes did not become level, or a post was lost, doubled or came back.
"""

from __future__ import annotations

import sys

from tests.helpers.campaigns import carry_out
from tests.homes.campaign import Campaign

if __name__ == "__main__":
    sys.exit(carry_out(Campaign, "homes.json", "rounds", 500))
