"""How a process ends: exit codes and one line on standard error."""

import subprocess
import sys

import pytest

from localnet.demo import INTERRUPTED
from protocol.errors import ConfigError
from runtime.entry import run_main


def raising(error: BaseException) -> int:
    raise error


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (ConfigError("port 1 is in use", "choose another"), 2, "muster: port 1 is in use"),
        (KeyboardInterrupt(), 130, "muster: interrupted"),
    ],
)
def test_end_is_a_code_and_at_most_a_line(
    error: BaseException, code: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as end:
        run_main(lambda: raising(error))
    assert end.value.code == code
    told = capsys.readouterr().err
    assert said in told
    assert len(told.splitlines()) == 1


def test_interrupted_process_leaves_no_traceback() -> None:
    code = "import signal\nfrom runtime.entry import run_main\n"
    code += "signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # a shell's background job ignores it
    code += "run_main(lambda: signal.raise_signal(signal.SIGINT) or 0)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 130
    assert "Traceback" not in done.stderr


def test_who_interrupts_a_long_run_is_told_how_it_goes_on(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        run_main(lambda: raising(KeyboardInterrupt()), interrupted=INTERRUPTED)
    assert end.value.code == 130
    assert capsys.readouterr().err == "muster: interrupted: the same command continues the run\n"
