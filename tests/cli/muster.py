"""Runs `muster` as people do: as a process of its own, with its own home."""

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runtime import keystore
from tests.cli import zygote

EXECUTABLE = Path(sys.executable).parent / "muster"
ROOT = Path(__file__).parents[2]
CLOSED = "http://127.0.0.1:1"
"""Nobody listens there."""
PASSED_ON = ("PATH", "LANG", "PYTHONPATH")


@dataclass
class CompletedCommand:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


@dataclass
class Muster:
    """`home` is an empty folder; nothing of the developer's environment is seen. `installed`: commands run in the
    executable itself, not in forks of a process that has imported it."""

    home: Path
    deployment: Path | None = None
    rpc: str | None = None
    installed: bool = False

    def run(self, *args: object, stdin: str = "", timeout: float = 180.0) -> CompletedCommand:
        env = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
        env |= {"HOME": str(self.home), "COLUMNS": "200", "OMP_NUM_THREADS": "1", "TERM": "dumb"}
        env |= {"MUSTER_DEPLOYMENT": str(self.deployment)} if self.deployment else {}
        env |= {"MUSTER_RPC": self.rpc} if self.rpc else {}
        words = [str(arg) for arg in args]
        if not self.installed:
            return CompletedCommand(*zygote.run(words, env, stdin, timeout))
        argv = [str(EXECUTABLE), *words]
        done = subprocess.run(argv, input=stdin, capture_output=True, text=True, env=env, timeout=timeout, check=False)
        return CompletedCommand(done.returncode, done.stdout, done.stderr)

    def ok(self, *args: object, stdin: str = "") -> CompletedCommand:
        """Run a command that has to succeed."""
        done = self.run(*args, stdin=stdin)
        assert done.code == 0, f"muster {' '.join(map(str, args))}: exit {done.code}\n{done.out}\n{done.err}"
        assert "Traceback" not in done.err
        return done

    def refused(self, *args: object, code: int = 2, stdin: str = "", timeout: float = 180.0) -> str:
        """Run a command that has to fail, with one line on standard error; returns it without the log lines."""
        done = self.run(*args, stdin=stdin, timeout=timeout)
        assert done.code == code, f"exit {done.code}\n{done.out}\n{done.err}"
        assert "Traceback" not in done.err + done.out
        lines = [line for line in done.err.splitlines() if line.startswith("muster: ")]
        assert len(lines) == 1, done.err
        return lines[0]


@dataclass
class Key:
    """A key file with its password file."""

    path: Path
    password_file: Path
    address: str

    @property
    def options(self) -> tuple[object, ...]:
        return "--keystore", self.path, "--password-file", self.password_file


def make_key(folder: Path, name: str) -> Key:
    """A key with a random password, cheap to open."""
    path, password_file = folder / f"{name}.json", folder / f"{name}.password"
    password = keystore.create_password_file(password_file)
    account = keystore.create(path, password, work_factor=keystore.LIGHT_SCRYPT_N)
    return Key(path, password_file, str(account.address))


def s3_settings(folder: Path, endpoint: str) -> dict[str, str]:
    credentials = folder / "credentials.json"
    credentials.write_text('{"access_key": "a", "secret_key": "b"}')
    credentials.chmod(0o600)
    return {"endpoint": endpoint, "bucket": "muster", "credentials": str(credentials)}
