"""Outer states on disk: folders that are complete or absent, the newest last, written while training goes on."""

import json
import logging
import shutil
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from protocol.encoding import canonical_json
from protocol.errors import MusterError
from protocol.files import drop_old, explained, folder_aside, put_folder, read_bounded, remove_leftovers
from protocol.sites.layout import TensorLayout
from protocol.sites.outer import OuterState
from protocol.sites.state_files import read_state, shard_bytes, shard_parts
from trainer.sites.inner import SAVED, Saving

log = logging.getLogger("muster.sites")
_WHICH, _MAX_WHICH, _KEPT = "state.json", 1024, 2
Begin = Callable[[Path], Saving]
"""Begins to write into a folder, of things as they are now."""


@dataclass
class _Writing:
    """`written`: of the state's own files; `more`: of what must be as old; `placed`: once both are there, of the
    folder's being synced and put at `target`."""

    target: Path
    aside: Path
    written: Future[None]
    more: Saving
    placed: Future[None] | None = None


class StateFolder:
    """In `folder`, made if need be, one sub-folder for each state that is kept. One process and one thread at a time;
    the writing is another thread's."""

    def __init__(self, folder: Path, layout: TensorLayout, shards: int) -> None:
        self._folder, self._layout, self._shards = folder, layout, shards
        self._writer = ThreadPoolExecutor(1, "state-writer")
        self._writing: _Writing | None = None
        folder.mkdir(parents=True, exist_ok=True)
        remove_leftovers(folder)

    def begin(self, state: OuterState, more: Begin = lambda _: SAVED) -> None:
        """Let a state be written, once the one before is there, and what else must be exactly as old, which `more`
        begins to put into the same folder. Raises as `finish`."""
        self.finish()
        target = self._folder / f"step-{state.step:010d}"
        with explained(f"write {target}", "free or mend the disk"):
            aside = folder_aside(target)
            try:
                saving = more(aside)
            except BaseException:
                shutil.rmtree(aside, ignore_errors=True)
                raise
        self._writing = _Writing(target, aside, self._writer.submit(self._write, state, aside), saving)

    def tend(self) -> bool:
        """Go on with what is being written, without a wait; whether all that was begun is there. Raises as `finish`."""
        now = self._writing
        if now is not None and (now.placed or now.written).done() and (now.placed is not None or now.more.done()):
            self._go_on(now)
        return self._writing is None

    def finish(self) -> None:
        """Return once all that was begun is there. Raises ConfigError where the disk does not take it, MusterError."""
        while (now := self._writing) is not None:
            self._go_on(now)

    def newest(self, also: Callable[[Path], None] = lambda _: None) -> OuterState | None:
        """The newest state that is whole, and `also` of its folder, which may raise IntegrityError too; None if there
        is none. Raises as `finish`."""
        self.finish()
        for path in reversed(self._found()):
            try:
                state = self._read(path)
                also(path)
            except (MusterError, OSError, ValueError, KeyError, TypeError) as error:
                log.warning("%s cannot be used: %s", path, error)
                continue
            return state
        return None

    def _go_on(self, now: _Writing) -> None:
        """The next part: what was written is taken for whole, or what was placed for there."""
        try:
            if now.placed is None:
                now.written.result()
                now.more.finish()
                now.placed = self._writer.submit(self._place, now)
                return
            now.placed.result()
        except BaseException:
            shutil.rmtree(now.aside, ignore_errors=True)
            self._writing = None
            raise
        self._writing = None

    def _write(self, state: OuterState, aside: Path) -> None:
        with explained(f"write {aside}", "free or mend the disk"):
            for number, parts in enumerate(shard_parts(state, self._shards)):
                with (aside / f"shard-{number:04d}").open("wb") as file:
                    file.writelines(parts)
            (aside / _WHICH).write_bytes(canonical_json({"step": state.step, "digest": state.digest.hex()}))

    def _place(self, now: _Writing) -> None:
        with explained(f"write {now.target}", "free or mend the disk"):
            put_folder(now.aside, now.target)
        drop_old(self._found(), _KEPT)

    def _found(self) -> list[Path]:
        return sorted(self._folder.glob("step-*"))

    def _read(self, path: Path) -> OuterState:
        which = json.loads(read_bounded(path / _WHICH, _MAX_WHICH))
        longest = [shard_bytes(pieces) for pieces in self._layout.shards(self._shards)]
        shards = [read_bounded(path / f"shard-{number:04d}", size) for number, size in enumerate(longest)]
        return read_state(int(which["step"]), str(which["digest"]), shards, self._layout)
