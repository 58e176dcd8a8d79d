#!/usr/bin/env bash
# Installs the Debian packages of system-deps.txt that are missing (make system-deps).
set -euo pipefail
cd "$(dirname "$0")/.."

missing=()
while read -r package; do
    dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || missing+=("$package")
done < <(sed 's/#.*//; s/[[:space:]]*$//; /^$/d' system-deps.txt)
"${PYTHON:-python3}" -c 'import ensurepip, venv' 2>/dev/null || missing+=(python3-venv)
# Where it came from does not matter, so the program is asked for and not the package.
node -e 'process.exit(parseInt(process.versions.node) < 18 ? 1 : 0)' 2>/dev/null && command -v npm >/dev/null ||
    missing+=(nodejs npm)

if [ ${#missing[@]} -eq 0 ]; then
    echo "system packages: all there"
    exit 0
fi
if ! command -v apt-get >/dev/null; then
    echo "system packages: this machine has no apt-get; install by hand: ${missing[*]}" >&2
    exit 1
fi
root=()
if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null || { echo "system packages: run as root: apt-get install ${missing[*]}" >&2; exit 1; }
    root=(sudo)
fi
echo "system packages: installing ${missing[*]}"
"${root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get update -qq
"${root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}"
