"""What a hostile package may try, in bubblewrap and without: nothing comes of it, and the next question is answered."""

import re
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from environments.verifiers import process as process_module
from environments.verifiers.process import PackageProcess
from protocol.errors import ScoringUnavailable
from sandbox.launch import try_mode
from sandbox.policy import Mode
from tests.environments.verifiers.conftest import MakeProcess
from tests.environments.verifiers.small import ROWS, turns


@pytest.fixture(params=[Mode.BUBBLEWRAP, Mode.PLAIN], ids=["bubblewrap", "plain"])
def mode(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Mode:
    chosen: Mode = request.param
    if chosen is Mode.BUBBLEWRAP and (trouble := try_mode(chosen, "").trouble):
        pytest.skip(trouble)
    monkeypatch.setattr(process_module, "_mode", lambda: chosen)
    return chosen


@pytest.fixture
def make(package: MakeProcess, mode: Mode) -> MakeProcess:
    def start(scored: str, loaded: str = "") -> PackageProcess:
        score = "\n\n    def score(answer):\n        if answer == 'fair':\n            return 0.5\n        "
        return package(f"{ROWS}\n    {loaded}{score}{scored}\n")

    return start


@pytest.mark.parametrize(
    ("scored", "said"),
    [
        ("import socket; socket.socket(socket.AF_UNIX).connect('/tmp/x')", "the network"),
        ("import urllib.request; urllib.request.urlopen('http://127.0.0.1:9/')", "the network"),
        ("import socket; socket.getaddrinfo('localhost', 9)", "the network"),
        ("import subprocess; subprocess.run(['true'])", "other programs"),
        ("import os\n        while True: os.fork()", "other programs"),
        ("import multiprocessing; multiprocessing.Process(target=print).start()", "other programs"),
        ("import os; os.kill(os.getppid(), 9)", "PermissionError"),
        ("import os; os.symlink('/etc/passwd', '/tmp/own-link')", "PermissionError"),
        ("open(__file__, 'a')", "PermissionError"),
        ("import ctypes; ctypes.CDLL(None).execve(b'/bin/true', None, None)", "the network or another process"),
    ],
)
def test_what_it_may_not_do(make: MakeProcess, scored: str, said: str) -> None:
    process = make(scored)
    with pytest.raises(ScoringUnavailable, match=re.escape(said)):
        process.score(0, turns("x"))
    assert process.score(0, turns("fair")) == 0.5


def test_files_and_settings_of_the_machine_are_out_of_sight(
    make: MakeProcess, mode: Mode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("A_SECRET", "of the user")
    assert make("import os; return float('A_SECRET' in os.environ)").score(0, turns("x")) == 0.0
    if mode is Mode.BUBBLEWRAP:
        secret = tmp_path / "secret"
        secret.write_text("of the user")
        assert make(f"import os; return float(os.path.exists({str(secret)!r}))").score(0, turns("x")) == 0.0


FLOOD = """import os
        for handle in range(3, 64):
            try:
                for _ in range(100):
                    os.write(handle, b'1' * (1 << 20))
            except OSError:
                pass
        return 1.0"""
TWICE = """import os; [os.write(int(handle), b'{"value": 1.0}') for handle in os.listdir('/proc/self/fd')]"""


@pytest.mark.parametrize("scored", [FLOOD, TWICE], ids=["a hundred megabytes in every stream", "a score written twice"])
def test_what_is_written_elsewhere_is_no_score(make: MakeProcess, scored: str) -> None:
    process = make(scored)
    with pytest.raises(ScoringUnavailable):
        process.score(0, turns("x"))
    assert process.score(0, turns("fair")) == 0.5


LINGER = """import os, time
    if os.fork() == 0:
        try:
            os.setsid()
        except OSError:
            pass
        while True:
            time.sleep(1)"""


def test_what_it_leaves_running_ends_with_it(make: MakeProcess) -> None:
    process = make("return 1.0", LINGER)
    assert process.score(0, turns("fair")) == 0.5
    assert process.pid is not None
    left = [psutil.Process(process.pid), *psutil.Process(process.pid).children(recursive=True)]
    assert len(left) > 1
    process.close()
    gone, alive = psutil.wait_procs(left, timeout=60)
    assert not alive, gone


ENDINGS = ["os._exit(0)", "os.abort()", "os.close(1)", "os.kill(0, 9)", "flood", "os.fork()", "sys.exit(0)"]


@pytest.mark.parametrize("how", ENDINGS)
def test_a_package_that_ends_its_process_or_floods_or_doubles_it_while_it_is_loaded(
    make: MakeProcess, how: str
) -> None:
    flood = FLOOD.replace("\n        return 1.0", "").replace("\n        ", "\n    ")
    end = "" if how == "os.fork()" else "; os._exit(1)"
    process = make("return 1.0", flood if how == "flood" else f"import os, sys; {how}{end}")
    # two processes that answer as one may both be right in time
    with suppress(ScoringUnavailable) if how == "os.fork()" else pytest.raises(ScoringUnavailable):
        assert [process.score(0, turns("fair")) for _ in range(4)] == [0.5] * 4
    assert process.pid is None or how in ("flood", "os.fork()")
