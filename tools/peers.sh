#!/usr/bin/env bash
# The reference implementation that our proofs are compared with, built from source into build/peers.
set -euo pipefail
cd "$(dirname "$0")/.."
[ -e build/peers/toploc ] && exit 0
.venv/bin/python -m pip install --quiet ninja==1.13.2 --no-deps
.venv/bin/python -m pip install --quiet --no-build-isolation --no-deps --no-binary toploc --target build/peers toploc==0.1.6
