"""How a process ends: exit codes and one line on standard error."""

import subprocess
import sys
from pathlib import Path
from unittest.mock import MagicMock

import psutil
import pytest

from protocol.errors import ConfigError
from protocol.waits import wait_for
from runtime.entry import run_main


@pytest.mark.parametrize(
    ("error", "words", "code", "said"),
    [
        (ConfigError("port 1 is in use", "choose another"), {}, 2, "muster: port 1 is in use; choose another"),
        (KeyboardInterrupt(), {}, 130, "muster: interrupted"),
        # Who interrupts a long run is told what is left.
        (
            KeyboardInterrupt(),
            {"interrupted": "interrupted: finished seeds are kept"},
            130,
            "muster: interrupted: finished seeds are kept",
        ),
    ],
)
def test_end_is_a_code_and_a_line(
    error: BaseException, words: dict[str, str], code: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as end:
        run_main(MagicMock(side_effect=error), **words)
    assert end.value.code == code
    assert capsys.readouterr().err == f"{said}\n"


def test_interrupted_process_leaves_no_traceback() -> None:
    code = "import signal\nfrom runtime.entry import run_main\n"
    code += "signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # a shell's background job ignores it
    code += "run_main(lambda: signal.raise_signal(signal.SIGINT) or 0)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 130
    assert "Traceback" not in done.stderr


ALONE = """
from runtime.entry import alone
alone("it", 600, exec, "import os, time; print('child', os.getpid(), flush=True); time.sleep(600)")
"""
ENGINE = """
from pathlib import Path
from runtime.engine_process import EngineProcesses
from runtime.process import EngineConfig
made = EngineProcesses(EngineConfig(), Path(sys.argv[1]))
print("child", made._children[0]._process.pid, flush=True)
time.sleep(600)
"""
# It waits for a configuration that nobody writes.
CALIBRATION = """
import subprocess
path = os.path.join(sys.argv[1], "pool.json")
os.mkfifo(path)
files = ("--pool-config", path, "--weights", path, "--out", path, "--engine", "transformers:float32:cpu")
numbers = [word for name in ("step", "files", "audit-rate", "threads", "batch") for word in ("--" + name, "1")]
argv = [sys.executable, "-m", "calibration.step", *files, *numbers, "--parent", str(os.getpid())]
process = subprocess.Popen(argv)
with open(path, "w"):
    print("child", process.pid, flush=True)
    time.sleep(600)
"""


@pytest.mark.parametrize("program", [ALONE, pytest.param(ENGINE, marks=pytest.mark.slow), CALIBRATION])
def test_a_child_dies_with_its_killed_parent(program: str, tmp_path: Path) -> None:
    """Even one that is stopped, as one that computes or waits for a device sees no closed pipe."""
    argv = [sys.executable, "-c", f"import os, sys, time\n{program}", str(tmp_path)]
    parent = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert parent.stdout is not None
    lines = [next(line for line in parent.stdout if line.startswith("child "))]
    child = psutil.Process(int(lines[0].split()[1]))
    try:
        child.suspend()
        parent.kill()
        parent.wait()
        wait_for(
            "its end", lambda: not child.is_running() or child.status() == psutil.STATUS_ZOMBIE or None, 60, poll=0.05
        )
    finally:
        parent.stdout.close()
        if child.is_running():
            child.kill()
