"""How a program is started, told to stop, and how it ends."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from protocol.errors import ConfigError
from protocol.waits import wait_for
from sandbox.bubblewrap import python_mounts
from sandbox.launch import IsolatedProcess, Launch, make_cgroup
from sandbox.policy import MIB, IsolationPolicy, Mode, Mount
from sandbox.watchdog import Watchdog
from tests.sandbox.conftest import need

SMALL = {"memory": 256 * MIB, "scratch": 16 * MIB, "processes": 64}
WAITS = """
import signal, sys
signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))
print("ready", flush=True)
signal.pause()
"""


def launch(request: pytest.FixtureRequest, mode: Mode, code: str) -> Launch:
    if mode is Mode.PODMAN:
        image = request.getfixturevalue("image")
        return Launch(mode, IsolationPolicy.model_validate(SMALL), ("python3", "-S", "-c", code), image)
    if mode is Mode.BUBBLEWRAP:
        need("bwrap")
    policy = IsolationPolicy.model_validate(SMALL | {"mounts": python_mounts()})
    return Launch(mode, policy, (sys.executable, "-S", "-c", code))


each_mode = pytest.mark.parametrize("mode", [Mode.PODMAN, Mode.BUBBLEWRAP, Mode.PLAIN], ids=lambda one: one.value)


@each_mode
def test_it_hears_signals_speaks_through_its_streams_and_is_ended(request: pytest.FixtureRequest, mode: Mode) -> None:
    with IsolatedProcess(launch(request, mode, WAITS), subprocess.DEVNULL, subprocess.PIPE) as process:
        assert process.process.stdout is not None
        assert process.process.stdout.readline() == b"ready\n"
        process.send(signal.SIGTERM)
        assert process.wait() == 7
    code = "import sys; print(sys.stdin.read()[::-1]); print('trouble', file=sys.stderr); sys.exit(3)"
    streams = (subprocess.PIPE, subprocess.PIPE, subprocess.PIPE)
    with IsolatedProcess(launch(request, mode, code), *streams) as process:
        out, err = process.process.communicate(b"abc", timeout=60)
        assert (out, err.strip().splitlines()[-1], process.wait()) == (b"cba\n", b"trouble", 3)
    began = time.monotonic()
    with IsolatedProcess(launch(request, mode, WAITS), subprocess.DEVNULL, subprocess.PIPE) as process:
        assert process.process.stdout is not None
        process.process.stdout.readline()
    assert process.process.poll() is not None
    assert time.monotonic() - began < 100


def test_a_program_sees_the_variables_that_it_is_given(request: pytest.FixtureRequest, tmp_path: Path) -> None:
    need("bwrap")
    code = "import os, json; print(json.dumps(sorted(os.environ)), os.getcwd(), os.environ['NAME'])"
    given = launch(request, Mode.BUBBLEWRAP, code)
    changes = {"environment": {"NAME": "two words"}, "folder": tmp_path}
    policy = given.policy.model_copy(update=changes | {"mounts": (*given.policy.mounts, Mount.same(tmp_path))})
    with IsolatedProcess(Launch(given.mode, policy, given.argv), subprocess.DEVNULL, subprocess.PIPE) as process:
        out, _ = process.process.communicate(timeout=60)
    known = '["LC_CTYPE", "NAME", "PATH", "PWD"]'
    assert out.decode().strip() == f"{known} {tmp_path} two words"


def test_a_missing_tool_is_named_and_nothing_is_left(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    made: list[Path] = []  # by this test alone: other programs of this machine make groups meanwhile

    def noted(settings: dict[Path, dict[str, str]]) -> None:
        make_cgroup(settings)
        made.extend(settings)

    monkeypatch.setattr("sandbox.launch.make_cgroup", noted)
    with pytest.raises(ConfigError, match=r"`bwrap` is not on the PATH"):
        IsolatedProcess(Launch(Mode.BUBBLEWRAP, IsolationPolicy(), ("true",)))
    assert [path for path in made if path.exists()] == []
    assert os.environ["PATH"] == str(tmp_path)


@pytest.mark.parametrize("done", [True, False])
def test_a_watchdog_cleans_up_unless_all_is_done(tmp_path: Path, done: bool) -> None:
    kept = tmp_path / "kept"
    kept.touch()
    watchdog = Watchdog(["rm", str(kept)], [])
    watchdog.dismiss(done=done)
    if not done:
        wait_for("it cleans up", lambda: not kept.exists(), 20)
    assert kept.exists() == done


def test_an_engine_that_hangs_is_left_to_the_watchdog(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Its `rm` hangs the first time."""
    log, program = tmp_path / "log", tmp_path / "docker"
    program.write_text(f'#!/bin/sh\necho "$1" >> {log}\n[ "$1" = rm ] && [ $(grep -c rm {log}) -lt 2 ] && sleep 30\n')
    program.write_text(program.read_text() + '[ "$1" = run ] && sleep 30\nexit 0\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr("sandbox.launch._KILL_SECONDS", 1.0)
    given = Launch(Mode.DOCKER, IsolationPolicy(), ("true",), "sha256:" + "00" * 32)
    with IsolatedProcess(given, subprocess.DEVNULL):
        wait_for("it runs", log.exists, 20)
    wait_for("it is removed again", lambda: log.read_text().split().count("rm") == 2, 20)
    assert log.read_text().split()[:3] == ["run", "rm", "rm"]


def test_a_program_can_count_the_processors() -> None:
    """vLLM asks so before it loads a model, and loads none if that fails."""
    need("bwrap")
    argv = ("lscpu", "--json", "--extended=CPU,CORE,NODE", "--online")
    given = Launch(Mode.BUBBLEWRAP, IsolationPolicy.model_validate(SMALL), argv)
    with IsolatedProcess(given, subprocess.DEVNULL, subprocess.PIPE) as process:
        out, _ = process.process.communicate(timeout=60)
    assert len(json.loads(out)["cpus"]) == os.cpu_count()
