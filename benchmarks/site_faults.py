"""Kills, joins and leaves of the sites of one run, as processes with a real bucket between them: does training go on by
itself, is any outer step lost or made twice, and how long is whoever comes back not at the newest state?
"""

import json
import os
import random
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

from benchmarks.site_letters import LetterTable
from benchmarks.site_process import SiteProcessConfig
from localnet.ports import claim_port
from protocol.accounts import Account
from protocol.sites.config import AdmissionConfig, SitesConfig
from protocol.sites.log import LogEvent, Noted
from protocol.sites.outer import OuterState
from protocol.sites.run import SitesRun
from protocol.waits import wait_for
from storage.s3 import Bucket, S3Settings
from trainer.sites.catching_up import step_to
from trainer.sites.exchange import SiteExchange
from trainer.sites.logbook import Logbook

ROOT = Path(__file__).parents[1]
MOST, FEWEST = 6, 2
SAVING_SECONDS = 0.3
"""That a site takes to write its inner work, so that kills fall into it."""
_PATIENCE = 120.0
Say = Callable[[str], None]


@dataclass(frozen=True)
class FaultFigures:
    """`faults`: kills of sites and of the keeper, joins, leaves. `steps_lost`: outer steps that a site has and the log
    has not, or that the log leaves out; `steps_twice`: that stand in it twice; `signed_twice`: attempts in which a site
    signed two contributions. `recovery_s`: of each site that was killed, from its start to an outer step that it
    made."""

    faults: int
    kinds: dict[str, int]
    steps: int
    steps_lost: int
    steps_twice: int
    signed_twice: int
    recovery_s: list[float]
    seconds: float


@dataclass
class SiteCrowd:
    """The processes of one run in `home`. Site k is `sites[k]` while it runs."""

    home: Path
    s3: S3Settings
    run: SitesRun
    secrets: list[str]
    sites: dict[int, subprocess.Popen[bytes]] = field(default_factory=dict)
    keeper: subprocess.Popen[bytes] | None = None

    def start_keeper(self) -> None:
        self.keeper = self._start("keeper", "keeper", "77" * 32)

    def start(self, number: int) -> None:
        self.sites[number] = self._start("site", f"site-{number}", self.secrets[number])

    def status(self, name: str) -> dict[str, Any]:
        path = self.home / name / "status.json"
        found: dict[str, Any] = json.loads(path.read_bytes()) if path.is_file() else {"step": -1, "outer_steps_made": 0}
        return found

    def end(self) -> None:
        for one in (*self.sites.values(), *([self.keeper] if self.keeper else [])):
            one.kill()
            one.wait()

    def _start(self, role: str, name: str, secret: str) -> subprocess.Popen[bytes]:
        values = {
            "role": role, "home": str(self.home / name), "run": str(self.home / "run.json"), "secret": secret,
            "s3": self.s3.model_dump(mode="json"), "saving_seconds": SAVING_SECONDS,
        }  # fmt: skip
        SiteProcessConfig.model_validate(values)
        (self.home / f"{name}.json").write_text(json.dumps(values))
        with (self.home / f"{name}.log").open("ab") as log:
            command = [sys.executable, "-m", "benchmarks.site_process", str(self.home / f"{name}.json")]
            return subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=log)


@contextmanager
def local_s3(data: Path) -> Iterator[S3Settings]:
    """A bucket of its own, as a process."""
    port, log = claim_port("s3", 0), data.with_suffix(".log")
    command = [sys.executable, "-m", "localnet.services.s3", "--data", str(data), "--port", str(port), "--with-parent"]
    with log.open("wb") as out:
        process = subprocess.Popen(command, cwd=ROOT, stdout=out, stderr=out)
    try:
        wait_for("the bucket", lambda: b"READY" in log.read_bytes() or None, _PATIENCE)
        where = {"endpoint": f"http://127.0.0.1:{port}", "bucket": "muster"}
        yield S3Settings(**where, credentials=data / "etc" / "credentials.json")
    finally:
        process.kill()
        process.wait()


def make_crowd(
    home: Path, s3: S3Settings, sites: int, name: str, window: int = 20, exchange: Literal["all", "shards"] = "all"
) -> SiteCrowd:
    """Nobody runs yet."""
    secrets = [f"{number + 1:02x}" * 32 for number in range(sites)]
    settings = SitesConfig(
        inner_steps=4, shards=2, window_seconds=window, training_seconds=window, state_every=4,
        admission=AdmissionConfig(minimum=1, cosine=None),
    )  # fmt: skip
    addresses = tuple(str(Account.from_key(one).address) for one in secrets)
    keeper = Account.from_key("77" * 32).address
    run = SitesRun(name=name, keeper=keeper, sites=addresses, settings=settings, exchange=exchange)
    home.mkdir(parents=True, exist_ok=True)
    (home / "run.json").write_text(run.model_dump_json())
    return SiteCrowd(home, s3, run, secrets)


def go_through(crowd: SiteCrowd, faults: int, seed: int, most: int, say: Say) -> FaultFigures:
    """Start, let `faults` things happen to 2 to `most` sites, and look at what they made."""
    dice, began, kinds, recovery = random.Random(seed), time.monotonic(), dict.fromkeys(_KINDS, 0), []
    crowd.start_keeper()
    for number in range(FEWEST):
        crowd.start(number)
    try:
        _made(crowd, "keeper", 1)
        for count in range(faults):
            kind = dice.choice(_possible(crowd, most))
            kinds[kind] += 1
            before = crowd.status("keeper")["step"]
            seconds = _happen(crowd, kind, dice, most)
            if seconds is not None:
                recovery.append(seconds)
            _made(crowd, "keeper", before + 1)
            step = crowd.status("keeper")["step"]
            say(f"{count + 1} of {faults}: {kind}, {len(crowd.sites)} sites, outer step {step}")
            time.sleep(dice.random() * 0.5)
        newest = crowd.status("keeper")["step"] + 1
        for number in crowd.sites:
            _made(crowd, f"site-{number}", newest)
    finally:
        crowd.end()
    steps, lost, twice = look(crowd)
    signed = signed_twice(SiteExchange(Bucket(crowd.s3), crowd.run))
    return FaultFigures(faults, kinds, steps, lost, twice, signed, recovery, round(time.monotonic() - began, 1))


_KINDS = ("kill", "kill keeper", "join", "leave")


def _possible(crowd: SiteCrowd, most: int) -> list[str]:
    return ["kill", "kill", "kill keeper", *(["join"] * 2 if len(crowd.sites) < most else []),
            *(["leave"] if len(crowd.sites) > FEWEST else [])]  # fmt: skip


def _happen(crowd: SiteCrowd, kind: str, dice: random.Random, most: int) -> float | None:
    """Let it happen; the seconds until a site that was killed has made an outer step again."""
    if kind == "kill keeper":
        assert crowd.keeper is not None
        crowd.keeper.kill()
        crowd.keeper.wait()
        crowd.start_keeper()
        return None
    if kind == "join":
        crowd.start(dice.choice([number for number in range(most) if number not in crowd.sites]))
        return None
    number = dice.choice(sorted(crowd.sites))
    process = crowd.sites.pop(number)
    if kind == "leave":
        os.kill(process.pid, signal.SIGTERM)
        if process.wait(_PATIENCE) not in (0, -signal.SIGTERM):  # the latter: it had hardly started
            raise RuntimeError(f"site {number} did not leave: {_tail(crowd, number)}")
        return None
    process.kill()
    process.wait()
    (crowd.home / f"site-{number}" / "status.json").unlink(missing_ok=True)
    started = time.monotonic()
    crowd.start(number)
    made = lambda: crowd.status(f"site-{number}")["outer_steps_made"] > 0 or None  # noqa: E731
    wait_for(f"site {number} to make an outer step", made, _PATIENCE)
    return round(time.monotonic() - started, 2)


def _made(crowd: SiteCrowd, name: str, step: int) -> None:
    def made() -> bool:
        for number, process in crowd.sites.items():
            if process.poll() is not None:
                raise RuntimeError(f"site {number} ended by itself: {_tail(crowd, number)}")
        return bool(crowd.status(name)["step"] >= step)

    wait_for(f"{name} to make outer step {step}", made, _PATIENCE)


def _tail(crowd: SiteCrowd, number: int) -> str:
    return (crowd.home / f"site-{number}.log").read_text()[-500:]


def look(crowd: SiteCrowd) -> tuple[int, int, int]:
    """Outer steps, how many of them are on a site's disk and not in the log or left out there, and how many stand in it
    twice. Raises IntegrityError if one does not follow from what was published."""
    exchange = SiteExchange(Bucket(crowd.s3), crowd.run)
    book = Logbook.newest(exchange)
    if book is None:
        raise RuntimeError("there is no log")
    state = OuterState.start(LetterTable().weights())
    boundaries = [boundary for _, boundary in book.chapters_back()][::-1]
    digests, lost = {state.digest.hex()}, 0
    for boundary in boundaries[1:]:
        state, _ = step_to(exchange, state, boundary)
        digests.add(state.digest.hex())
    for number in range(len(crowd.secrets)):
        status = crowd.status(f"site-{number}")
        lost += status["step"] >= 0 and status["digest"] not in digests
    numbers = [boundary.step for boundary in boundaries]
    lost += len(set(range(numbers[-1] + 1)) - set(numbers))
    return numbers[-1], lost, len(numbers) - len(set(numbers))


def signed_twice(exchange: SiteExchange) -> int:
    """In how many attempts the log has two contributions that one site signed."""
    book, found = Logbook.at(exchange, 0), set()

    def note(before: Logbook, event: LogEvent) -> None:
        if isinstance(event, Noted) and event.what == "sign":
            found.add((before.schedule.step, before.schedule.attempt, event.site, event.digest))

    while (upcoming := book.upcoming()) is not None:
        book.take(*upcoming, note)
    return len(found) - len({one[:3] for one in found})


def run(quick: bool, progress: Say, seed: int = 7, only: str = "all") -> dict[str, Any]:
    """`faults` kills, joins and leaves, of sites and of the keeper, of 2 to 6 sites. Recovery includes a process's
    start. `only`: `shards` for sites that reduce shards."""
    with TemporaryDirectory(prefix="muster-sites-") as folder, local_s3(Path(folder) / "s3") as s3:
        exchange: Literal["all", "shards"] = "shards" if only == "shards" else "all"
        crowd = make_crowd(Path(folder) / "run", s3, MOST, f"faults-{seed}", exchange=exchange)
        made = go_through(crowd, 6 if quick else 50, seed, MOST, progress)
    found = sorted(made.recovery_s)
    recovery = {"median": statistics.median(found), "max": found[-1], "count": len(found)} if found else {}
    figures: dict[str, Any] = {**vars(made), "recovery_s": recovery, "load": round(os.getloadavg()[0], 1)}
    return figures
