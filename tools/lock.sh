#!/usr/bin/env bash
# Rewrites requirements.lock: every version of requirements.in with the hashes of all its files, flat (installed with --no-deps).
set -euo pipefail
cd "$(dirname "$0")/.."
tool=$(mktemp -d)
trap 'rm -rf "$tool"' EXIT
python3 -m pip install --quiet --target "$tool" uv
"$tool/bin/uv" pip compile --no-deps --generate-hashes --python-version 3.11 --no-header --no-annotate --quiet \
  requirements.in -o requirements.lock
