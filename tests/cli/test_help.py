"""Help costs nothing: no heavy library is imported for it."""

import subprocess
import sys
from pathlib import Path

from tests.cli.muster import Muster

HEAVY = ("torch", "web3", "transformers", "eth_account", "eth_abi", "httpx", "numpy", "chain")
PROBE = f"""
import sys
sys.argv = ["muster", "node", "--help"]
from cli.main import main
try:
    main()
finally:
    print([name for name in {HEAVY} if name in sys.modules], file=sys.stderr)
"""


def test_help_imports_no_heavy_library() -> None:
    done = subprocess.run([sys.executable, "-c", PROBE], capture_output=True, text=True, timeout=60, check=True)
    assert "dry-run" in done.stdout
    assert done.stderr.splitlines()[-1] == "[]"


def test_a_noun_alone_shows_its_help(tmp_path: Path) -> None:
    done = Muster(tmp_path, installed=True).run("node")
    assert done.code == 2
    assert "dry-run" in done.out
    assert done.err == ""
