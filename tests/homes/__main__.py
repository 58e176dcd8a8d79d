"""`make homes [ROUNDS=n] [SEED=n]`: carries the rounds out and writes build/homes.json.

Exit status 1 where homes did not become level, or a post was lost, doubled or came back. With the argument
`healing` it measures the time after a long cut instead (healing.py).
"""

from __future__ import annotations

import sys

from tests.helpers.campaigns import carry_out
from tests.homes import healing
from tests.homes.campaign import Campaign

if __name__ == "__main__":
    if sys.argv[1:2] == ["healing"]:
        sys.exit(healing.main(sys.argv[2:]))
    sys.exit(carry_out(Campaign, "homes.json", "rounds", 500))
