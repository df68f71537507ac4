"""What a worker and a coordinator keep on disk.

A worker writes two kinds of folders, each complete or absent: an outer state, and the contribution on its way, each
with the inner task as it was then. No kill loses an outer step or repeats one: until a state is written, which happens
during the next inner steps, the state before it and the contribution to that stay, from which the same step is made
again."""

import json
import logging
import os
import shutil
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar
from zipfile import BadZipFile

import numpy as np

from diloco.codec import TensorLayout, Tensors
from diloco.config import DilocoRun
from diloco.inner import InnerTask
from diloco.messages import Contribution, Signed
from diloco.outer import OuterState, read_state, shard_parts, state_shard_bytes
from diloco.state_machine import Schedule
from protocol import files
from protocol.encoding import canonical_json, sha256_hex
from protocol.errors import ConfigError, IntegrityError, MusterError
from protocol.waits import WAITS

log = logging.getLogger("muster.diloco")
T = TypeVar("T")
STATUS = "status.json"
_KEPT_STATES = 2
_LOCK_SECONDS = 10.0
_DAMAGED = (MusterError, OSError, ValueError, KeyError, TypeError, BadZipFile)  # what reading a damaged folder raises


@dataclass(frozen=True)
class OwnContribution:
    """A worker's contribution on its way: the same bytes for as long as its outer step can take it. `document`: its
    signed bytes; `payload`: the shards. Made from the state of digest `base` (hex) in attempt `attempt`, on the `share`
    of the data. `error`: the error feedback if it counts (mode `sparse`)."""

    document: bytes
    payload: tuple[bytes, ...]
    base: str
    attempt: int
    share: tuple[str, ...]
    error: Tensors | None

    @property
    def digest(self) -> str:
        return sha256_hex(self.document)


class WorkerStore:
    """In `home`. `error`: the error feedback that belongs to the inner task as it was last restored. One thread uses
    it; another writes states."""

    def __init__(self, home: Path, layout: TensorLayout, shards: int, task: InnerTask) -> None:
        self._states, self._pending = home / "outer", home / "pending"
        self._layout, self._shards, self._task = layout, shards, task
        self._writer = ThreadPoolExecutor(1, "state-writer")
        # The state that is being written: its folder, the one aside, and the write of its own files.
        self._write: tuple[Path, Path, Future[None]] | None = None
        self.error: Tensors | None = None
        for folder in (self._states, self._pending):
            folder.mkdir(parents=True, exist_ok=True)
            files.remove_leftovers(folder)

    def newest(self) -> OuterState | None:
        """Return the newest state that is intact, with the inner task restored to what it was then; None if there is
        none. Raises MusterError where the disk does not take what was begun."""
        self.finish()
        return self._restored(self._states, self._read_state)

    def pending(self, state: OuterState) -> OwnContribution | None:
        """Return the newest intact contribution that was made from `state`, with the inner task restored to what it was
        then; None if there is none."""
        base = state.digest.hex()
        return self._restored(self._pending, lambda path: self._read_contribution(path, base))

    def begin_state(self, state: OuterState, error: Tensors | None) -> None:
        """Begin to write a new state with the inner task that goes on from it. Raises MusterError."""
        self.finish()
        target = self._states / f"step-{state.step:010d}"
        with files.explained(f"write {target}", "free or mend the disk"):
            aside = files.folder_aside(target)
            try:
                _write_error(aside, error)
                self._task.save(aside / "inner")
            except BaseException:
                shutil.rmtree(aside, ignore_errors=True)
                raise
        self._write = target, aside, self._writer.submit(self._write_state, state, aside)

    def keep_contribution(self, step: int, own: OwnContribution) -> None:
        """Write a contribution to outer step `step`, after the state that it was made from. Raises MusterError."""
        self.finish()

        def fill(folder: Path) -> None:
            self._task.save(folder / "inner")
            (folder / "document").write_bytes(own.document)
            for number, data in enumerate(own.payload):
                (folder / f"shard-{number:04d}").write_bytes(data)
            _write_error(folder, own.error)
            about = {"document": own.digest, "attempt": own.attempt, "share": list(own.share)}
            (folder / "pending.json").write_bytes(canonical_json(about))
            self._task.finish_save()

        files.write_folder(self._pending / f"step-{step:010d}-{own.attempt:010d}", fill)

    def drop_contribution(self) -> None:
        """Delete the contribution: it will not be offered any more."""
        for path in self._pending.glob("step-*"):
            shutil.rmtree(path, ignore_errors=True)

    def undo(self) -> None:
        """Restore the inner task to what it was when the outer step under way began. Raises IntegrityError."""
        if self.newest() is None:
            raise IntegrityError("no outer state on disk is intact", "start this worker with a new home")

    def tend(self) -> None:
        """Complete what was being written, if that takes no wait. Raises MusterError."""
        if self._write is not None and self._write[2].done() and self._task.saved():
            self.finish()

    def finish(self) -> None:
        """Return once all that was begun is there. Raises MusterError."""
        if self._write is None:
            return
        (target, aside, written), self._write = self._write, None
        try:
            with WAITS.on("the disk, for the newest outer state"):
                written.result()
                self._task.finish_save()
                with files.explained(f"write {target}", "free or mend the disk"):
                    files.put_folder(aside, target)
        except BaseException:
            shutil.rmtree(aside, ignore_errors=True)
            raise
        files.drop_old(sorted(self._states.glob("step-*")), _KEPT_STATES)
        self.drop_contribution()  # which led to the state that is there now

    def _restored(self, folder: Path, read: Callable[[Path], T | None]) -> T | None:
        for path in sorted(folder.glob("step-*"), reverse=True):
            try:
                value = read(path)
                if value is not None:
                    self._task.restore(path / "inner")
                    return value
            except _DAMAGED as error:
                log.warning("%s cannot be used: %s", path, error)
        return None

    def _write_state(self, state: OuterState, aside: Path) -> None:
        with files.explained(f"write {aside}", "free or mend the disk"):
            for number, parts in enumerate(shard_parts(state, self._shards)):
                with (aside / f"shard-{number:04d}").open("wb") as file:
                    file.writelines(parts)
                    os.fsync(file)  # here, where nobody waits for it
            (aside / "state.json").write_bytes(canonical_json({"step": state.step, "digest": state.digest.hex()}))

    def _read_state(self, path: Path) -> OuterState:
        which = json.loads(files.read_bounded(path / "state.json", 1024))
        sizes = [state_shard_bytes(pieces) for pieces in self._layout.shards(self._shards)]
        shards = (files.read_bounded(path / f"shard-{number:04d}", size) for number, size in enumerate(sizes))
        self.error = self._read_error(path)
        return read_state(int(which["step"]), str(which["digest"]), shards, self._layout, self._shards)

    def _read_error(self, path: Path) -> Tensors | None:
        if not (path / "error.npz").exists():
            return None
        with np.load(path / "error.npz") as stored:
            tensors = {name: stored[name] for name in stored.files}
        if TensorLayout.of(tensors) != self._layout:
            raise IntegrityError(f"{path / 'error.npz'} is of another model")
        return tensors

    def _read_contribution(self, path: Path, base: str) -> OwnContribution | None:
        about = json.loads((path / "pending.json").read_bytes())
        document = (path / "document").read_bytes()
        body = Signed[Contribution].model_validate_json(document).body
        if body.base != base:
            return None
        payload = tuple((path / f"shard-{number:04d}").read_bytes() for number in range(len(body.shards)))
        hashes = [about["document"], *(shard.sha256 for shard in body.shards)]
        if list(map(sha256_hex, (document, *payload))) != hashes:
            raise IntegrityError(f"a file in {path} is damaged")
        share, error = tuple(about["share"]), self._read_error(path)
        return OwnContribution(document, payload, base, about["attempt"], share, error)


def _write_error(folder: Path, error: Tensors | None) -> None:
    if error is not None:
        np.savez(folder / "error.npz", **error)  # type: ignore[arg-type]


def open_home(home: Path, run: DilocoRun) -> ExitStack:
    """Claim a home folder for one run, and lock it for this process while the result is not closed. Raises ConfigError
    where it is another run's, whose states would be taken for this one's; MusterError where another process works
    there."""
    held = ExitStack()
    held.enter_context(files.locked(home / "diloco.lock", f"the other process in {home} to end", _LOCK_SECONDS))
    mark = home / "run.sha256"
    if not mark.exists():
        files.write_atomic(mark, run.digest.encode())
    elif mark.read_bytes() != run.digest.encode():
        held.close()
        raise ConfigError(f"{home} is the home of another run than {run.name}", "name another home, or that run")
    return held


class StatusFile:
    """`status.json` in a home: written when it changes, at most once a second."""

    def __init__(self, home: Path, status: Callable[[], dict[str, Any]]) -> None:
        self._path, self._status, self._last, self._at = home / STATUS, status, b"", 0.0

    def __call__(self) -> None:
        if time.monotonic() - self._at >= 1.0:
            self.write()

    def write(self) -> None:
        data = canonical_json({**self._status(), "waits": WAITS.report()})
        self._at = time.monotonic()
        if data != self._last:
            files.write_atomic(self._path, data)
            self._last = data


def step_status(state: OuterState, schedule: Schedule | None) -> dict[str, Any]:
    """Return where a process stands that holds `state`, for `status.json`; without a `schedule` it is starting."""
    status = {"step": state.step, "digest": state.digest.hex()}
    if schedule is None:
        return status | {"phase": "starting", "attempt": 0, "members": [], "waiting": [], "backing_off": {}}
    return status | {
        "phase": schedule.phase.value, "attempt": schedule.attempt,
        "members": sorted(schedule.members), "waiting": sorted(schedule.waiting),
        "backing_off": {worker: schedule.strikes[worker].until for worker in sorted(schedule.backing_off)},
    }  # fmt: skip
