"""Kills, joins and leaves of DiLoCo workers and of their coordinator.

Processes with a real bucket between them; inner steps cost next to nothing. Does training go on by itself, is any outer
step lost or made twice, and how long does a killed worker take to make an outer step again? `python -m
benchmarks.diloco_faults FILE` is one of the processes.
"""

import json
import os
import random
import signal
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

import numpy as np

from diloco.codec import F32, Tensors
from diloco.config import AdmissionConfig, DilocoConfig, DilocoRun
from diloco.coordinator import Coordinator
from diloco.inner import DataShare
from diloco.log import Log, make_step
from diloco.main import MemberDaemon
from diloco.messages import CommitRecord, ContributionSigned
from diloco.outer import OuterState
from diloco.store import open_home
from diloco.transport import Transport
from diloco.worker import Worker
from localnet.ports import claim_port
from protocol.accounts import Account
from protocol.encoding import Document, load_document
from protocol.errors import IntegrityError
from protocol.files import die_with_parent
from protocol.waits import wait_for
from runtime.entry import start_logging
from runtime.process import make_home, serve
from storage.s3 import Bucket, S3Settings

ROOT = Path(__file__).parents[1]
MOST, FEWEST = 6, 2
SAVING_SECONDS = 0.3  # that a worker takes to write its inner task, so that kills fall into it
TASKS = ("sums", "reversal", "sorting", "counting", "repetition", "successors")
LINE_BYTES, LETTERS, RATE = 24, 128, np.float32(0.5)
_PATIENCE = 120.0
Progress = Callable[[str], None]


def text_line(task: str, dice: random.Random) -> bytes:
    """Return a line of the task, cut or padded with spaces to LINE_BYTES."""
    a, b = dice.randrange(100), dice.randrange(100)
    word = "".join(dice.choice("abcdefgh") for _ in range(8))
    lines = {
        "sums": f"{a} + {b} = {a + b}",
        "reversal": f"{word} -> {word[::-1]}",
        "sorting": f"sort {word}: {''.join(sorted(word))}",
        "counting": f"a in {word}: {word.count('a')}",
        "repetition": f"{word} {word}",
        "successors": f"after {a} comes {a + 1}",
    }
    return lines[task].encode()[:LINE_BYTES].ljust(LINE_BYTES)


def line(number: int) -> bytes:
    """Return line `number` of an endless text."""
    dice = random.Random(number)
    return text_line(dice.choice(TASKS), dice)


class LetterTask:
    """An inner task that costs next to nothing: the next letters of lines of text by a softmax regression. `position`
    counts the lines it has passed; `saving`: seconds that writing it takes, as a large model's does."""

    def __init__(self, batch: int = 8, saving: float = 0.0) -> None:
        dice = np.random.default_rng(0)
        self.table = (0.01 * dice.standard_normal((LETTERS, LETTERS))).astype(np.float32)
        self.bias = np.zeros(LETTERS, np.float32)
        self.velocity: dict[str, F32] = {name: np.zeros_like(weight) for name, weight in self.weights().items()}
        self.position, self._batch, self._saving = 0, batch, saving

    def weights(self) -> Tensors:
        return {"table": self.table.copy(), "bias": self.bias.copy()}

    def load(self, weights: Tensors) -> None:
        self.table, self.bias = np.array(weights["table"]), np.array(weights["bias"])

    def train(self, share: DataShare, number: int) -> int:
        lines: list[bytes] = []
        while len(lines) < self._batch:
            self.position += 1
            if share.owns(self.position - 1):
                lines.append(line(self.position))
        return self.learn(lines)

    def learn(self, lines: list[bytes]) -> int:
        """Take one gradient step on some lines; return how many letters it learned from."""
        before, after, error = self._predicted(lines)
        error[np.arange(len(after)), after] -= 1
        error /= len(after)
        table = np.zeros_like(self.table)
        np.add.at(table, before, error)
        for name, gradient in {"table": table, "bias": error.sum(0)}.items():
            self.velocity[name] = np.float32(0.5) * self.velocity[name] + gradient
            setattr(self, name, (getattr(self, name) - RATE * self.velocity[name]).astype(np.float32))
        return len(before)

    def metrics(self) -> dict[str, float]:
        return {}

    def loss(self, first: int, count: int) -> float:
        """Return the mean loss (nats) of lines that no worker trains on."""
        _, after, chances = self._predicted([line(-1 - number) for number in range(first, first + count)])
        return float(-np.log(chances[np.arange(len(after)), after]).mean())

    def save(self, folder: Path) -> None:
        folder.mkdir()
        kept: dict[str, Any] = {**self.weights(), "position": np.array(self.position)}
        kept |= {f"velocity.{name}": velocity for name, velocity in self.velocity.items()}

        def write() -> None:
            time.sleep(self._saving)
            np.savez(folder / "task.npz", **kept)

        pool = ThreadPoolExecutor(1, "letters")
        self._written = pool.submit(write)
        pool.shutdown(wait=False)

    def saved(self) -> bool:
        return self._written.done()

    def finish_save(self) -> None:
        self._written.result()

    def restore(self, folder: Path) -> None:
        try:
            with np.load(folder / "task.npz") as kept:
                self.load({"table": kept["table"], "bias": kept["bias"]})
                self.velocity = {name: kept[f"velocity.{name}"] for name in ("table", "bias")}
                self.position = int(kept["position"])
        except (OSError, ValueError, KeyError) as error:
            raise IntegrityError(f"{folder} is damaged: {error}") from None

    def _predicted(self, lines: list[bytes]) -> tuple[Any, Any, F32]:
        """Return the letters of lines but their last, those after each, and the chances of what comes after each."""
        before = np.frombuffer(b"".join(line[:-1] for line in lines), np.uint8)
        after = np.frombuffer(b"".join(line[1:] for line in lines), np.uint8)
        logits = self.table[before] + self.bias
        powers = np.exp(logits - logits.max(1, keepdims=True))
        return before, after, (powers / powers.sum(1, keepdims=True)).astype(np.float32)


@contextmanager
def local_s3(data: Path) -> Iterator[S3Settings]:
    """A bucket of its own, as a process."""
    port, log = claim_port(), data.with_suffix(".log")
    command = [sys.executable, "-m", "localnet.services.s3", "--data", str(data), "--port", str(port)]
    with log.open("wb") as out:
        process = subprocess.Popen(command, cwd=ROOT, stdout=out, stderr=out, preexec_fn=die_with_parent)
    try:
        wait_for("the bucket", lambda: b"READY" in log.read_bytes() or None, _PATIENCE)
        where = {"endpoint": f"http://127.0.0.1:{port}", "bucket": "muster"}
        yield S3Settings(**where, credentials=data / "etc" / "credentials.json")
    finally:
        process.kill()
        process.wait()


class ProcessConfig(Document):
    """`secret`: the key of a run that is over in minutes, 32 bytes in hex."""

    role: Literal["coordinator", "worker"]
    home: Path
    run: Path
    s3: S3Settings
    secret: str
    poll_seconds: float = 0.3
    steps: int = 0


@dataclass
class Crowd:
    """The processes of one run in `home`. Worker k is `workers[k]` while it runs."""

    home: Path
    s3: S3Settings
    run: DilocoRun
    secrets: list[str]
    workers: dict[int, subprocess.Popen[bytes]] = field(default_factory=dict)
    coordinator: subprocess.Popen[bytes] | None = None

    @classmethod
    def of(cls, home: Path, s3: S3Settings, workers: int, name: str) -> "Crowd":
        secrets = [f"{number + 1:02x}" * 32 for number in range(workers)]
        settings = DilocoConfig(
            inner_steps=4, shards=2, window_seconds=20, training_seconds=20, state_every=4,
            admission=AdmissionConfig(minimum=1, cosine=None),
        )  # fmt: skip
        addresses = tuple(str(Account.from_key(secret).address) for secret in secrets)
        coordinator = Account.from_key("77" * 32).address
        run = DilocoRun(name=name, coordinator=coordinator, workers=addresses, settings=settings)
        home.mkdir(parents=True, exist_ok=True)
        (home / "run.json").write_text(run.model_dump_json())
        return cls(home, s3, run, secrets)

    def start_coordinator(self) -> None:
        self.coordinator = self._start("coordinator", "coordinator", "77" * 32)

    def start(self, number: int) -> None:
        self.workers[number] = self._start("worker", f"worker-{number}", self.secrets[number])

    def status(self, name: str) -> dict[str, Any]:
        path = self.home / name / "status.json"
        return dict(json.loads(path.read_bytes())) if path.is_file() else {"step": -1, "outer_steps_made": 0}

    def until(self, name: str, step: int) -> None:
        """Wait until a process is at an outer step; raise RuntimeError where a worker ended by itself."""

        def there() -> bool:
            for number, process in self.workers.items():
                if process.poll() is not None:
                    raise RuntimeError(f"worker {number} ended by itself: {self.tail(number)}")
            return bool(self.status(name)["step"] >= step)

        wait_for(f"{name} to make outer step {step}", there, _PATIENCE)

    def tail(self, number: int) -> str:
        return (self.home / f"worker-{number}.log").read_text()[-500:]

    def end(self) -> None:
        for process in (*self.workers.values(), *([self.coordinator] if self.coordinator else [])):
            process.kill()
            process.wait()

    def _start(self, role: str, name: str, secret: str) -> subprocess.Popen[bytes]:
        values = {
            "role": role, "home": str(self.home / name), "run": str(self.home / "run.json"), "secret": secret,
            "s3": self.s3.model_dump(mode="json"),
        }  # fmt: skip
        (self.home / f"{name}.json").write_text(json.dumps(values))
        with (self.home / f"{name}.log").open("ab") as log:
            command = [sys.executable, "-m", "benchmarks.diloco_faults", str(self.home / f"{name}.json")]
            return subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=log)


def go_through(crowd: Crowd, faults: int, seed: int, progress: Progress) -> dict[str, Any]:
    """Let `faults` things happen to 2 to 6 workers; return how often which happened, and how long each killed worker
    took to make an outer step again."""
    dice, kinds, recovery = random.Random(seed), Counter[str](), list[float]()
    crowd.start_coordinator()
    for number in range(FEWEST):
        crowd.start(number)
    try:
        crowd.until("coordinator", 1)
        for count in range(faults):
            possible = ["kill", "kill", "kill coordinator"]
            possible += ["join"] * 2 if len(crowd.workers) < MOST else []
            possible += ["leave"] if len(crowd.workers) > FEWEST else []
            kind = dice.choice(possible)
            kinds[kind] += 1
            before = crowd.status("coordinator")["step"]
            recovery += _happen(crowd, kind, dice)
            crowd.until("coordinator", before + 1)
            step = crowd.status("coordinator")["step"]
            progress(f"{count + 1} of {faults}: {kind}, {len(crowd.workers)} workers, outer step {step}")
            time.sleep(dice.random() * 0.5)
        newest = crowd.status("coordinator")["step"] + 1
        for number in crowd.workers:
            crowd.until(f"worker-{number}", newest)
    finally:
        crowd.end()
    return {"faults": faults, "kinds": dict(kinds), "recovery_s": recovery}


def _happen(crowd: Crowd, kind: str, dice: random.Random) -> list[float]:
    """Let it happen; return the seconds until a killed worker has made an outer step again."""
    if kind == "kill coordinator":
        assert crowd.coordinator is not None
        crowd.coordinator.kill()
        crowd.coordinator.wait()
        crowd.start_coordinator()
        return []
    if kind == "join":
        crowd.start(dice.choice([number for number in range(MOST) if number not in crowd.workers]))
        return []
    number = dice.choice(sorted(crowd.workers))
    process = crowd.workers.pop(number)
    if kind == "leave":
        os.kill(process.pid, signal.SIGTERM)
        if process.wait(_PATIENCE) not in (0, -signal.SIGTERM):  # the latter: it had hardly started
            raise RuntimeError(f"worker {number} did not leave: {crowd.tail(number)}")
        return []
    process.kill()
    process.wait()
    (crowd.home / f"worker-{number}" / "status.json").unlink(missing_ok=True)
    started = time.monotonic()
    crowd.start(number)
    what = f"worker {number} to make an outer step"
    wait_for(what, lambda: crowd.status(f"worker-{number}")["outer_steps_made"] > 0 or None, _PATIENCE)
    return [round(time.monotonic() - started, 2)]


def inspect(crowd: Crowd) -> dict[str, int]:
    """Make all outer steps again; return how many there are, are lost (a worker has one that the log has not, or the
    log leaves one out) and are made twice, and in how many attempts a worker signed two contributions. Raises
    IntegrityError if one does not follow from what was published."""
    transport = Transport(Bucket(crowd.s3), crowd.run)
    log = Log.newest(transport)
    assert log is not None, "there is a log"
    state = OuterState.start(LetterTask().weights())
    commits: list[CommitRecord] = [commit for _, commit in log.commits_back()][::-1]
    digests, lost = {state.digest.hex()}, 0
    for commit in commits[1:]:
        state, _ = make_step(transport, state, commit)
        digests.add(state.digest.hex())
    for number in range(len(crowd.secrets)):
        status = crowd.status(f"worker-{number}")
        lost += status["step"] >= 0 and status["digest"] not in digests
    numbers = [commit.step for commit in commits]
    lost += len(set(range(numbers[-1] + 1)) - set(numbers))
    twice = len(numbers) - len(set(numbers))
    return {
        "steps": numbers[-1], "steps_lost": lost, "steps_twice": twice, "signed_twice": signed_twice(transport)
    }  # fmt: skip


def signed_twice(transport: Transport) -> int:
    """Return in how many attempts the log has two contributions that one worker signed."""
    reader, excluded = Log.at(transport, 0), set()
    while (upcoming := transport.next_entry(reader.number, reader.tip)) is not None:
        draft = reader.draft()
        for event in upcoming[0].events:
            if isinstance(event, ContributionSigned):
                excluded.add((draft.schedule.step, draft.schedule.attempt, event.worker, event.document))
            draft.apply(event)
        reader.take(*upcoming)
    return len(excluded) - len({message[:3] for message in excluded})


def run(quick: bool, progress: Progress, seed: int = 7) -> dict[str, Any]:
    """Return the figures of 50 faults (quick: 6) of 2 to 6 workers; a recovery includes the process's start."""
    began = time.monotonic()
    with TemporaryDirectory(prefix="muster-diloco-") as folder, local_s3(Path(folder) / "s3") as s3:
        crowd = Crowd.of(Path(folder) / "run", s3, MOST, f"faults-{seed}")
        figures = go_through(crowd, 6 if quick else 50, seed, progress) | inspect(crowd)
    times = figures["recovery_s"]
    recovery = {"median": statistics.median(times), "max": max(times), "count": len(times)} if times else {}
    seconds, load = round(time.monotonic() - began, 1), round(os.getloadavg()[0], 1)
    return figures | {"recovery_s": recovery, "seconds": seconds, "load": load}


def main() -> None:
    start_logging()
    die_with_parent()
    config: Any = load_document(Path(sys.argv[1]), ProcessConfig)
    make_home(config.home)
    run_, account = load_document(config.run, DilocoRun), Account.from_key(config.secret)
    held, transport = open_home(config.home, run_), Transport(Bucket(config.s3), run_)
    task = LetterTask(saving=SAVING_SECONDS)
    member: Worker | Coordinator = Worker(transport, account, task, config.home)
    if config.role == "coordinator":
        member = Coordinator(transport, account, OuterState.start(task.weights()), config.home)
    serve(MemberDaemon(member, config, held), grace=None)


if __name__ == "__main__":
    main()
