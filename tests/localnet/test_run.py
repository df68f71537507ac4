"""The process that runs the demo supervises others and computes nothing."""

import subprocess
import sys


def test_the_demo_itself_loads_neither_pytorch_nor_pyarrow() -> None:
    code = "import sys, localnet.run; print([m for m in ('torch', 'transformers', 'pyarrow') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "[]\n"
