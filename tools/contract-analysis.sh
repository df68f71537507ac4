#!/usr/bin/env bash
# halmos (symbolic proofs of the arithmetic core) and slither (static analysis), in an environment of their own.
set -euo pipefail
cd "$(dirname "$0")/.."
tools=build/contract-tools
if [ ! -x "$tools/bin/slither" ]; then
  python3.11 -m venv "$tools" 2>/dev/null || python3 -m venv "$tools"
  "$tools/bin/pip" install --quiet halmos==0.3.3 slither-analyzer==0.11.6
fi
# forge itself, not .bin/forge, which exits with 0 whatever forge says
export PATH="$(echo "$PWD"/node_modules/@foundry-rs/forge-*/bin):$PWD/node_modules/.bin:$PWD/$tools/bin:$PATH"
contracts/tools/analyse.sh
