"""How a process ends: exit codes and one line on standard error."""

import subprocess
import sys
from unittest.mock import MagicMock

import pytest

from protocol.errors import ConfigError
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
