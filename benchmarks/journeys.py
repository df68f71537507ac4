"""Three newcomers, from an installed muster to the first claim, by exactly the commands of the guides.

`python -m benchmarks journeys [--only TEXT]`. `muster up` makes a local network; each newcomer has a home folder and a
terminal of its own, and types the first fenced block of its guide. Only what the guide leaves open is filled in:
`https://pool.example` is the local network's service (an owner's own), `base-sepolia` as terms is `local`. Keys:
`operator`, `validator`, `owner`, each {commands, seconds, load}: how many commands it typed, and the time from the
first until the first pay on chain: of the operator's node, of the validator's seat, of the first node in the owner's
pool, in whose time others join it.
"""

import json
import os
import pty
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import httpx

from localnet.ports import is_free
from protocol.errors import ConfigError
from protocol.files import user_cache
from protocol.waits import wait_for

DOCS = Path(__file__).parents[1] / "docs"


def commands(guide: str, heading: str) -> list[str]:
    """Return the `muster …` lines of the first fenced block below a heading of docs/<guide>.md, continued lines as one.
    Raises LookupError where there is none."""
    text = (DOCS / f"{guide}.md").read_text().replace("\\\n", " ")
    _, heading_found, below = text.partition(f"\n{heading}\n")
    block = re.search(r"^```(?:sh)?\n(.*?)^```", below, re.MULTILINE | re.DOTALL)
    if not heading_found or block is None:
        raise LookupError(f"{guide}.md has no commands below {heading!r}")
    lines = [line.partition(" #")[0].strip() for line in block[1].splitlines()]
    return [line for line in lines if line.startswith("muster ")]


_QUESTION = re.compile(rb"\[y/N\]: ?$")


class TerminalCommand:
    """A command that a person runs in a terminal, its questions answered with yes. `log` gets what is shown."""

    def __init__(self, line: str, folder: Path, environment: Mapping[str, str], log: Path) -> None:
        ours, theirs = pty.openpty()
        self.line, self._log, self._terminal = line, log, ours
        self.process = subprocess.Popen(
            shlex.split(line), cwd=folder, env=dict(environment), stdin=theirs, stdout=theirs, stderr=theirs,
            start_new_session=True,
        )  # fmt: skip
        os.close(theirs)
        threading.Thread(target=self._read, name="terminal", daemon=True).start()

    def shown(self) -> str:
        """Return what the terminal shows so far."""
        return self._log.read_text(errors="replace") if self._log.exists() else ""

    def wait(self, seconds: float) -> int:
        """Return its exit code. Raises subprocess.TimeoutExpired."""
        return self.process.wait(seconds)

    def stop(self, seconds: float = 60.0) -> None:
        """As Ctrl-C would; what does not end in time is killed."""
        if self.process.poll() is None:
            self.process.send_signal(2)
            try:
                self.process.wait(seconds)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait(10)

    def _read(self) -> None:
        with self._log.open("ab") as out:
            last = b""
            while True:
                try:
                    data = os.read(self._terminal, 65536)
                except OSError:  # the other end is closed: the command ended
                    break
                if not data:
                    break
                out.write(data)
                out.flush()
                last = (last + data)[-200:]
                if _QUESTION.search(last):
                    time.sleep(0.2)
                    os.write(self._terminal, b"y\n")
                    last = b""
        os.close(self._terminal)


GUIDES = {
    "operator": ("guides/base", "## Operator"),
    "validator": ("guides/base", "## Validator"),
    "owner": ("guides/base", "## Owner"),
}
MOST = {"operator": 3, "validator": 2, "owner": 6}  # Commands, at most
_EXECUTABLES = Path(sys.executable).parent
_STAYS = (("node", "up"), ("validator", "up"), ("pool", "serve"), ("pool", "train"))
_UP, _COMMAND, _PAID = 1800.0, 600.0, 1800.0
_OWNERS_URL = "http://127.0.0.1:8700"


def run(quick: bool, progress: Callable[[str], None] = lambda line: None, only: str = "") -> dict[str, dict[str, Any]]:
    """Send every newcomer on its way. A quick run has the operator alone."""
    chosen = [name for name in GUIDES if only in name][: 1 if quick else None]
    results = {}
    with tempfile.TemporaryDirectory(prefix="muster-journeys-") as folder, local_network(Path(folder)) as network:
        for name in chosen:
            load = round(os.getloadavg()[0], 1)
            results[name] = {**JOURNEYS[name](network), "load": load}
            progress(f"{name}: {results[name]}")
    return results


@dataclass
class JourneyNetwork:
    """`muster up` in a folder; `folder` holds it and the newcomers' homes."""

    folder: Path
    url: str

    @property
    def root(self) -> Path:
        return self.folder / "network"


@contextmanager
def local_network(folder: Path) -> Iterator[JourneyNetwork]:
    """Bring up a small network, and take it down at the end."""
    root = folder / "network"
    try:
        others(folder, "up", "--folder", str(root), "--workers", "1", "--validators", "1", seconds=_UP)
        processes = json.loads(others(folder, "ps", "--folder", str(root), "--json"))
        yield JourneyNetwork(folder, str(processes["url"]))
    finally:
        others(folder, "down", "--folder", str(root), "--delete", "--yes", seconds=_UP)


def others(folder: Path, *words: str, seconds: float = _COMMAND) -> str:
    """Return what somebody else's command says. Raises ConfigError with its words if it fails."""
    argv = [str(_EXECUTABLES / "muster"), *words]
    env = environment(folder / "others") | {"XDG_CACHE_HOME": str(user_cache("").parent)}  # base models made before
    done = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=seconds, check=False)
    if done.returncode:
        raise ConfigError(f"muster {' '.join(words)}: {done.stderr.strip()}", "see the logs")
    return done.stdout


def environment(home: Path) -> dict[str, str]:
    """Return that of a fresh login; `muster` is installed."""
    home.mkdir(exist_ok=True)
    kept = {name: os.environ[name] for name in ("LANG", "PYTHONPATH") if name in os.environ}
    path = f"{_EXECUTABLES}{os.pathsep}{os.environ['PATH']}"
    return {"PATH": path, "HOME": str(home), "TERM": "dumb", "COLUMNS": "200", **kept}


@dataclass
class Newcomer:
    """Somebody with an empty home. `words`: what the guide leaves open → what stands there."""

    name: str
    folder: Path
    words: dict[str, str]
    typed: list[TerminalCommand] = field(default_factory=list)
    begun: float = 0.0

    @property
    def desk(self) -> Path:
        """Where the commands are typed."""
        return self.folder / self.name

    def type_guide(self, after: dict[str, Callable[[], object]] | None = None) -> None:
        """Type every line of the guide; `after`: what others do once a command (its first two words) has ended. Raises
        ConfigError for a command that fails."""
        env = environment(self.desk)
        self.begun = self.begun or time.monotonic()
        for line in self.lines():
            log = self.desk / f"{len(self.typed)}.log"
            command = TerminalCommand(line, self.desk, env, log)
            self.typed.append(command)
            pair = tuple(line.split()[1:3])
            if pair in _STAYS:
                time.sleep(3)
            elif command.wait(_COMMAND):
                raise ConfigError(f"{line}: exit {command.process.returncode}: {command.shown()[-500:]}", "see its log")
            (after or {}).get(" ".join(pair), lambda: None)()

    def lines(self) -> list[str]:
        """Return the guide's, filled in."""
        filled = commands(*GUIDES[self.name.partition("-")[0]])
        for open_, given in self.words.items():
            filled = [line.replace(open_, given) for line in filled]
        return filled

    def until(self, paid: Callable[[], bool]) -> dict[str, Any]:
        """Return commands and seconds until it was paid. Raises TimeoutError with what its terminals show."""
        while not paid():
            ended = [command for command in self.typed if command.process.poll()]
            if ended or time.monotonic() - self.begun > _PAID:
                shown = "\n".join(f"{command.line}\n{command.shown()[-2000:]}" for command in self.typed)
                raise TimeoutError(f"{self.name} was not paid:\n{shown}")
            time.sleep(1)
        return {"commands": len(self.typed), "seconds": round(time.monotonic() - self.begun, 1)}

    def leave(self) -> None:
        for command in reversed(self.typed):
            command.stop()


def participants(url: str, kind: str, money: str) -> dict[str, int]:
    """Return address → base units of `money`, of a pool's participants by its service; none while that is silent."""
    try:
        record = httpx.get(f"{url}/v1/dashboard", timeout=10, trust_env=False).raise_for_status().json()
    except (httpx.HTTPError, ValueError):
        return {}
    return {entry["address"]: int(entry[money]) for entry in record[kind]}


def _joins(name: str, kind: str, money: str, network: JourneyNetwork) -> dict[str, Any]:
    """Let somebody join the network's pool, until paid."""
    known = participants(network.url, kind, money).keys()
    newcomer = Newcomer(name, network.folder, {"https://pool.example": network.url})
    try:
        newcomer.type_guide()
        return newcomer.until(
            lambda: any(paid for who, paid in participants(network.url, kind, money).items() if who not in known)
        )
    finally:
        newcomer.leave()


def owner(network: JourneyNetwork) -> dict[str, Any]:
    """Open a pool, with a model, a bucket and a deployment file at hand."""
    if not is_free(8700):
        raise ConfigError("port 8700, the service's default, is in use", "stop what uses it")
    newcomer = Newcomer("owner", network.folder, {"https://pool.example": _OWNERS_URL, "base-sepolia": "local"})
    guest = Newcomer("operator-guest", network.folder, {"https://pool.example": _OWNERS_URL})
    newcomer.desk.mkdir()
    _lay_out(network, newcomer.desk)
    with ExitStack() as stack:
        stack.callback(newcomer.leave)
        newcomer.type_guide({"pool train": lambda: wait_for_weights(_OWNERS_URL)})
        stack.callback(guest.leave)
        guest.type_guide()
        return newcomer.until(lambda: any(participants(_OWNERS_URL, "nodes", "claimed").values()))


def _lay_out(network: JourneyNetwork, desk: Path) -> None:
    """Lay out what an owner has before the first command."""
    shutil.copy(network.root / "deployment" / "deployment.json", desk / "deployment.json")
    shutil.copytree((network.root / "opened").read_text(), desk / "my-model")
    shutil.copy(network.root / "s3.json", desk / "s3.json")


def wait_for_weights(url: str) -> None:
    """Wait until a pool can be joined: its service answers, and policy step 0 is there."""

    def published() -> bool:
        try:
            status = httpx.get(f"{url}/v1/status", timeout=10, trust_env=False).raise_for_status().json()
        except (httpx.HTTPError, ValueError):
            return False
        return status["step"] is not None

    wait_for("policy step 0", published, _COMMAND, poll=1.0)


JOURNEYS: dict[str, Callable[[JourneyNetwork], dict[str, Any]]] = {
    "operator": partial(_joins, "operator", "nodes", "claimed"),
    "validator": partial(_joins, "validator", "validators", "fees"),
    "owner": owner,
}
