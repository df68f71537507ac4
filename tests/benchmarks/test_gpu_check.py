"""The script that measures a GPU, with small sizes on a CPU."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.gpu_check import PARTS


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_every_part_measures_something_and_a_limit_ends_none_of_the_others(tmp_path: Path) -> None:
    assert sum(seconds for seconds, _ in PARTS.values()) <= 540
    out = tmp_path / "new" / "found.json"
    command = [sys.executable, "-m", "benchmarks.gpu_check", "--device", "cpu", "--quick", "--out", str(out)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    found = json.loads(out.read_text())
    assert (done.returncode, list(found)) == (0, list(PARTS)), done.stdout
    assert found["noise"]["different_at_1.0"] == found["noise"]["different_at_0.7"] == 0
    assert found["generate"]["float32_2"]["mismatches"] == 0
    assert found["train"].keys() >= {"plain", "offloaded", "long", "lora"}
    assert found["repeat"]["different"] == 0
