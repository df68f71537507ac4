"""What a worker and a coordinator keep on disk.

A worker writes two kinds of folders, each complete or absent: an outer state with the inner task as it was right
after it, and the contribution on its way with the inner task as it was when that was made. The order is such that a
kill at any moment loses no outer step and repeats none. A state is written while inner steps go on from it. Until it
is there, the state before it and the contribution to that stay, from which the same outer step is made again. The
next contribution waits for it, so nobody hears of work whose beginning is not on disk.
"""

import json
import logging
import shutil
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from diloco.config import DilocoRun
from diloco.messages import Contribution, Signed
from diloco.outer import OuterState, read_state, shard_parts, state_shard_bytes
from diloco.state_machine import Schedule
from diloco.tensors import TensorLayout, Tensors, paste
from protocol.encoding import canonical_json, sha256_hex
from protocol.errors import ConfigError, IntegrityError, MusterError
from protocol.files import (
    drop_old,
    explained,
    folder_aside,
    locked,
    put_folder,
    read_bounded,
    remove_leftovers,
    write_atomic,
    write_folder,
)
from protocol.waits import WAITS

log = logging.getLogger("muster.diloco")
STATUS = "status.json"
_KEPT_STATES = 2
_LOCK_SECONDS = 10.0


class Saving(Protocol):
    """Something that is being written to disk as it was when that began. One thread uses it."""

    def done(self) -> bool:
        """Return whether `finish` need not wait any longer."""
        ...

    def finish(self) -> None:
        """Return once it is written. Raises MusterError."""
        ...


class Saved:
    """A `Saving` that is written already."""

    def done(self) -> bool:
        return True

    def finish(self) -> None:
        pass


class Savable(Protocol):
    """The part of an inner task that the store uses; see `tasks.InnerTask`."""

    def save(self, folder: Path) -> Saving: ...

    def restore(self, folder: Path) -> None: ...


@dataclass(frozen=True)
class OwnContribution:
    """A worker's contribution on its way: the same bytes for as long as its outer step can take it.

    `document`: its signed bytes; `payload`: the shards. Made from the state of digest `base` (hex) in attempt
    `attempt`, on the `share` of the data. `error`: the error feedback if it counts (mode `sparse`)."""

    document: bytes
    payload: tuple[bytes, ...]
    base: str
    attempt: int
    share: tuple[str, ...]
    error: Tensors | None

    @property
    def digest(self) -> str:
        return sha256_hex(self.document)


@dataclass
class _Write:
    """A state folder that is being written. `written`: its own files; `task`: the inner task's; `placed`: once both are
    there, syncing the folder and putting it at `target`."""

    target: Path
    aside: Path
    written: Future[None]
    task: Saving
    placed: Future[None] | None = None


class WorkerStore:
    """In `home`. `error`: the error feedback that belongs to the inner task as it was last restored. One thread uses
    it; files are written by another."""

    def __init__(self, home: Path, layout: TensorLayout, shards: int, task: Savable) -> None:
        self._states, self._pending = home / "outer", home / "pending"
        self._layout, self._shards, self._task = layout, shards, task
        self._writer = ThreadPoolExecutor(1, "state-writer")
        self._write: _Write | None = None
        self.error: Tensors | None = None
        for folder in (self._states, self._pending):
            folder.mkdir(parents=True, exist_ok=True)
            remove_leftovers(folder)

    def newest(self) -> OuterState | None:
        """Return the newest state that is intact, with the inner task restored to what it was then; None if there is
        none. Raises MusterError where the disk does not take what was begun."""
        self.finish()
        for path in reversed(self._found()):
            try:
                state = self._read_state(path)
                self._task.restore(path / "inner")
                self.error = self._read_error(path)
            except (MusterError, OSError, ValueError, KeyError, TypeError) as error:
                log.warning("%s cannot be used: %s", path, error)
                continue
            return state
        return None

    def pending(self, state: OuterState) -> OwnContribution | None:
        """Return the newest intact contribution that was made from `state`, with the inner task restored to what it was
        then; None if there is none."""
        for path in sorted(self._pending.glob("step-*"), reverse=True):
            try:
                own = self._read_contribution(path)
                if own.base == state.digest.hex():
                    self._task.restore(path / "inner")
                    return own
            except (IntegrityError, OSError, ValueError, KeyError) as error:
                log.warning("%s cannot be used: %s", path, error)
        return None

    def begin_state(self, state: OuterState, error: Tensors | None) -> None:
        """Begin to write a new state with the inner task that goes on from it. Raises MusterError."""
        self.finish()
        target = self._states / f"step-{state.step:010d}"
        with explained(f"write {target}", "free or mend the disk"):
            aside = folder_aside(target)
            try:
                if error is not None:
                    write_tensors(aside / "error", error, self._layout)
                saving = self._task.save(aside / "inner")
            except BaseException:
                shutil.rmtree(aside, ignore_errors=True)
                raise
        self._write = _Write(target, aside, self._writer.submit(self._write_state, state, aside), saving)

    def keep_contribution(self, step: int, own: OwnContribution) -> None:
        """Write a contribution to outer step `step`, after the state that it was made from. Raises MusterError."""
        self.finish()

        def fill(folder: Path) -> None:
            saving = self._task.save(folder / "inner")
            told = {
                "base": own.base, "attempt": own.attempt, "share": list(own.share), "document": own.digest,
                "shards": len(own.payload),
            }  # fmt: skip
            (folder / "document").write_bytes(own.document)
            for number, data in enumerate(own.payload):
                (folder / f"shard-{number:04d}").write_bytes(data)
            if own.error is not None:
                write_tensors(folder / "error", own.error, self._layout)
            (folder / "pending.json").write_bytes(canonical_json(told))
            saving.finish()

        write_folder(self._pending / f"step-{step:010d}-{own.attempt:010d}", fill)

    def drop_contribution(self) -> None:
        """Delete the contribution: it will not be offered any more."""
        for path in self._pending.glob("step-*"):
            shutil.rmtree(path, ignore_errors=True)

    def undo(self) -> None:
        """Restore the inner task to what it was when the outer step under way began. Raises IntegrityError."""
        if self.newest() is None:
            raise IntegrityError("no outer state on disk is intact", "start this worker with a new home")

    def tend(self) -> None:
        """Continue what is being written, without a wait. Raises MusterError."""
        now = self._write
        if now is not None and (now.placed or now.written).done() and (now.placed is not None or now.task.done()):
            self._continue(now)

    def finish(self) -> None:
        """Return once all that was begun is there. Raises MusterError."""
        while (now := self._write) is not None:
            with WAITS.on("the disk, for the newest outer state"):
                self._continue(now)

    def _continue(self, now: _Write) -> None:
        try:
            if now.placed is None:
                now.written.result()
                now.task.finish()
                now.placed = self._writer.submit(self._place, now)
                return
            now.placed.result()
        except BaseException:
            shutil.rmtree(now.aside, ignore_errors=True)
            self._write = None
            raise
        self._write = None
        self.drop_contribution()  # which led to the state that is there now

    def _write_state(self, state: OuterState, aside: Path) -> None:
        with explained(f"write {aside}", "free or mend the disk"):
            for number, parts in enumerate(shard_parts(state, self._shards)):
                with (aside / f"shard-{number:04d}").open("wb") as file:
                    file.writelines(parts)
            (aside / "state.json").write_bytes(canonical_json({"step": state.step, "digest": state.digest.hex()}))

    def _place(self, now: _Write) -> None:
        with explained(f"write {now.target}", "free or mend the disk"):
            put_folder(now.aside, now.target)
        drop_old(self._found(), _KEPT_STATES)

    def _found(self) -> list[Path]:
        return sorted(self._states.glob("step-*"))

    def _read_state(self, path: Path) -> OuterState:
        which = json.loads(read_bounded(path / "state.json", 1024))
        sizes = [state_shard_bytes(pieces) for pieces in self._layout.shards(self._shards)]
        shards = (read_bounded(path / f"shard-{number:04d}", size) for number, size in enumerate(sizes))
        return read_state(int(which["step"]), str(which["digest"]), shards, self._layout, self._shards)

    def _read_error(self, path: Path) -> Tensors | None:
        return read_tensors(path / "error", self._layout) if (path / "error").exists() else None

    def _read_contribution(self, path: Path) -> OwnContribution:
        told = json.loads((path / "pending.json").read_bytes())
        document = (path / "document").read_bytes()
        if sha256_hex(document) != told["document"]:
            raise IntegrityError(f"{path / 'document'} is damaged")
        payload = tuple((path / f"shard-{number:04d}").read_bytes() for number in range(told["shards"]))
        signed = Signed[Contribution].model_validate_json(document)
        if [sha256_hex(one) for one in payload] != [one.sha256 for one in signed.body.shards]:
            raise IntegrityError(f"a shard in {path} is damaged")
        share, error = tuple(told["share"]), self._read_error(path)
        return OwnContribution(document, payload, told["base"], told["attempt"], share, error)


def write_tensors(path: Path, tensors: Tensors, layout: TensorLayout) -> None:
    """Write tensors of a layout as one file: SHA-256 of what follows, then float32 in the layout's order."""
    data = b"".join(np.ascontiguousarray(tensors[name], "<f4").tobytes() for name, _ in layout.shapes)
    path.write_bytes(bytes.fromhex(sha256_hex(data)) + data)


def read_tensors(path: Path, layout: TensorLayout) -> Tensors:
    """Read what `write_tensors` wrote. Raises IntegrityError where the file is damaged, or of another layout."""
    stored = path.read_bytes()
    data = stored[32:]
    if bytes.fromhex(sha256_hex(data)) != stored[:32] or len(data) != 4 * layout.size:
        raise IntegrityError(f"{path} is damaged")
    (pieces,), tensors = layout.shards(1), layout.empty()
    bounds = np.cumsum([piece.size for piece in pieces])[:-1]
    paste(tensors, pieces, np.split(np.frombuffer(data, "<f4"), bounds) if pieces else [])
    return tensors


class StatePublisher:
    """Puts the coordinator's states into the bucket in the background; no outer step waits for it.

    Nothing depends on it: a newcomer that finds no recent state takes an older one and makes the steps since again."""

    def __init__(self, publish: Callable[[OuterState], str]) -> None:
        self._publish = publish
        self._sender = ThreadPoolExecutor(1, "state-sender")
        self._sent: tuple[OuterState, Future[str]] | None = None

    def begin(self, state: OuterState) -> bool:
        """Begin to publish a state; False where the one before is still on its way, and this one is left out."""
        if self._sent is not None and not self._sent[1].done():
            log.info("outer state %d is not published: the one before is still being sent", state.step)
            return False
        self._sent = state, self._sender.submit(self._publish, state)
        return True

    def tend(self) -> None:
        """Send a state again whose upload failed."""
        if self._sent is not None and self._sent[1].done() and self._sent[1].exception() is not None:
            state, sent = self._sent
            log.warning("outer state %d is sent again: %s", state.step, sent.exception())
            self._sent = state, self._sender.submit(self._publish, state)

    def finish(self) -> None:
        """Return once what was begun is sent, or cannot be."""
        if self._sent is None:
            return
        (state, sent), self._sent = self._sent, None
        with WAITS.on(f"the bucket, for outer state {state.step}"):
            if (error := sent.exception()) is not None:
                log.warning("outer state %d was not published: %s", state.step, error)


def open_home(home: Path, run: DilocoRun) -> ExitStack:
    """Claim a home folder for one run, and lock it for this process while the result is not closed.

    Raises ConfigError where it is another run's, whose states would be taken for this one's; MusterError where another
    process works there."""
    held = ExitStack()
    held.enter_context(locked(home / "diloco.lock", f"the other process in {home} to end", _LOCK_SECONDS))
    mark = home / "run.sha256"
    if not mark.exists():
        write_atomic(mark, run.digest.encode())
    elif mark.read_bytes() != run.digest.encode():
        held.close()
        raise ConfigError(f"{home} is the home of another run than {run.name}", "name another home, or that run")
    return held


class StatusFile:
    """`status.json` in a home: written when it changes, at most once a second."""

    def __init__(self, home: Path, made: Callable[[], dict[str, Any]]) -> None:
        self._path, self._made, self._last, self._at = home / STATUS, made, b"", 0.0

    def __call__(self) -> None:
        if time.monotonic() - self._at >= 1.0:
            self.write()

    def write(self) -> None:
        data = canonical_json({**self._made(), "waits": WAITS.report()})
        self._at = time.monotonic()
        if data != self._last:
            write_atomic(self._path, data)
            self._last = data


def step_status(state: OuterState, now: Schedule | None) -> dict[str, Any]:
    """Return where a process stands that holds `state`, for `status.json`; `now` is None before it has started."""
    return {
        "step": state.step,
        "digest": state.digest.hex(),
        "phase": "starting" if now is None else now.phase.value,
        "attempt": 0 if now is None else now.attempt,
        "members": [] if now is None else sorted(now.members),
        "waiting": [] if now is None else sorted(now.waiting),
        "backing_off": {} if now is None else {one: now.strikes[one].until for one in sorted(now.backing_off)},
    }
