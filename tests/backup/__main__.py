"""`make backups [ROUNDS=n] [SEED=n]`: carries the rounds out and writes build/backups.json.

Exit status 1 where a backup could not be restored, was not of one moment, or an effect happened twice.
"""

from __future__ import annotations

import sys

from tests.backup.campaign import Campaign
from tests.helpers.campaigns import carry_out

if __name__ == "__main__":
    sys.exit(carry_out(Campaign, "backups.json", "rounds", 300))
