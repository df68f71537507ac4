"""Importing what needs accounts leaves the interpreter's limits alone."""

import subprocess
import sys

import pytest


@pytest.mark.parametrize(
    "modules",
    ["protocol.accounts", "runtime.keystore", "chain.client", "storage.s3, chain.client", "worker.main", "cli.main"],
)
def test_imports_keep_the_recursion_limit(modules: str) -> None:
    program = f"import sys; limit = sys.getrecursionlimit(); import {modules}; assert sys.getrecursionlimit() == limit"
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120)
