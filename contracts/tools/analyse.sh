#!/usr/bin/env bash
# Symbolic proofs of the arithmetic core, and static analysis; needs forge, halmos and slither on the PATH.
# docs/reference/contracts.md explains every high and medium finding of slither; any other makes this fail.
set -euo pipefail
cd "$(dirname "$0")/../.."
FOUNDRY_PROFILE=halmos forge build
FOUNDRY_PROFILE=halmos halmos --contract HalmosProofs --forge-build-out contracts/cache/halmos
out=build/slither.json
mkdir -p build && rm -f "$out"
slither . --filter-paths node_modules --exclude-informational --exclude-optimization --exclude-low --json "$out" --fail-none
node contracts/tools/slither.mjs "$out"
