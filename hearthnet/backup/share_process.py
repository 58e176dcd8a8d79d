"""The process in which the helpers' key is split into shares, or put together from them; then it ends.

    python -m hearthnet.backup.share_process       one line of JSON in, one line out

`shamir-mnemonic` says of itself that it protects a secret neither in time nor in memory. No other program
measures this process, it has no other secret and no network, and its memory ends with it.

See: docs/decisions/0208-recovery-by-helpers.md.
"""

from __future__ import annotations

import json
import resource
import sys
from typing import Any, Final

THRESHOLD: Final = 2
SHARES: Final = 3


def main() -> None:
    """Answer one request.

    `{"seed": hex}` is answered by `shares`, and `{"shares": [...]}` by `seed` or `error`.
    """
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    sys.stdout.write(json.dumps(answer(json.loads(sys.stdin.readline()))) + "\n")


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """Return the answer to `request`."""
    from shamir_mnemonic import MnemonicError, combine_mnemonics, generate_mnemonics

    if "seed" in request:
        (shares,) = generate_mnemonics(1, [(THRESHOLD, SHARES)], bytes.fromhex(request["seed"]))
        return {"shares": shares}
    try:
        return {"seed": combine_mnemonics(request["shares"]).hex()}
    except (MnemonicError, ValueError) as error:
        return {"error": str(error)}


if __name__ == "__main__":
    main()
