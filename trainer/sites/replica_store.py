"""Outer states on disk: folders that are complete or absent, the newest last."""

import logging
from collections.abc import Callable
from pathlib import Path

from protocol.errors import IntegrityError
from protocol.files import read_bounded
from protocol.folders import drop_old, remove_leftovers, write_folder
from protocol.sites.layout import TensorLayout
from protocol.sites.outer import OuterState
from protocol.sites.state_files import MAX_LIST_BYTES, open_list, read_state, shard_bytes, write_state

log = logging.getLogger("muster.sites")
_LIST, _KEPT = "state.json", 2
Fill = Callable[[Path], None]


class StateFolder:
    """In `folder`, made if need be, one sub-folder for each state that is kept. One process at a time."""

    def __init__(self, folder: Path, layout: TensorLayout, shards: int) -> None:
        self._folder, self._layout, self._shards = folder, layout, shards
        folder.mkdir(parents=True, exist_ok=True)
        remove_leftovers(folder)

    def keep(self, state: OuterState, more: Fill = lambda _: None) -> None:
        """Write a state, and what else must be exactly as old; `more` puts it into the same folder."""

        def fill(folder: Path) -> None:
            files, shards = write_state(state, self._shards)
            for number, data in enumerate(shards):
                (folder / f"shard-{number:04d}").write_bytes(data)
            (folder / _LIST).write_bytes(files.encode())
            more(folder)

        write_folder(self._folder / f"step-{state.step:010d}", fill)
        drop_old(self._found(), _KEPT)

    def newest(self, also: Callable[[Path], None] = lambda _: None) -> OuterState | None:
        """The newest state that is whole, and `also` of its folder, which may raise IntegrityError too; None if there
        is none."""
        for path in reversed(self._found()):
            try:
                state = self._read(path)
                also(path)
            except (IntegrityError, OSError) as error:
                log.warning("%s cannot be used: %s", path, error)
                continue
            return state
        return None

    def _found(self) -> list[Path]:
        return sorted(self._folder.glob("step-*"))

    def _read(self, path: Path) -> OuterState:
        files = open_list(read_bounded(path / _LIST, MAX_LIST_BYTES), self._shards)
        longest = [shard_bytes(pieces) for pieces in self._layout.shards(self._shards)]
        shards = [read_bounded(path / f"shard-{number:04d}", size) for number, size in enumerate(longest)]
        return read_state(files.step, files.digest, shards, self._layout)
