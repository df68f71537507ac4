"""Checkpoints of all ranks: weights, optimizer, generator and counters with their hashes, complete or absent. Each rank
writes its own shards in the background, and any number of ranks can read them from the same folder."""

import json
import logging
import secrets
import shutil
import warnings
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_state_dict, set_state_dict
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import async_save

from protocol.encoding import canonical_json, sha256_hex
from protocol.errors import ConfigError, IntegrityError, MusterError, first_line
from protocol.files import file_digests, file_sha256, put_folder, write_atomic
from trainer.distributed import Ranks

log = logging.getLogger("muster.trainer")
VERSION = 2
STATE = "state.json"
_SHARES = "files-of-rank-"
_TRAINED = StateDictOptions(ignore_frozen_params=True, strict=False)  # what is frozen comes from the model's folder
warnings.filterwarnings("ignore", "torch.distributed is disabled")  # what a process alone intends


@dataclass(frozen=True)
class LearnerState:
    """Counters, the generator's state (hex) and whatever else must be as old as the weights (`extra`, JSON)."""

    step: int
    updates: int
    generator: str
    extra: dict[str, Any]


class PendingCheckpoint:
    """A checkpoint that will appear at `folder`, written in the background from a copy in the host's memory. Every rank
    must begin it."""

    def __init__(
        self, folder: Path, model: Any, optimizers: list[torch.optim.Optimizer], state: LearnerState, ranks: Ranks
    ) -> None:
        self._folder, self._ranks, self._state = folder, ranks, state
        self._aside = ranks.broadcast(folder.parent / f".{folder.name}.{secrets.token_hex(6)}")
        values, group = _values(model, optimizers), ranks.side_group
        saved = async_save(values, checkpoint_id=self._aside, process_group=group, no_dist=group is None)
        assert isinstance(saved, Future)
        with_digests = ThreadPoolExecutor(1, "checkpoint")
        self._written = with_digests.submit(self._finish, saved)
        with_digests.shutdown(wait=False)

    def _finish(self, saved: "Future[Any]") -> None:
        """Write the digests of this rank's files once they are there."""
        saved.result()
        own = {path.name: file_sha256(path) for path in self._aside.glob(f"__{self._ranks.rank}_*")}
        write_atomic(self._aside / f"{_SHARES}{self._ranks.rank}", canonical_json(own))

    def done(self) -> bool:
        """Return whether this rank's part is written; `wait` seals the whole."""
        return self._written.done()

    def wait(self) -> None:
        """Return once the checkpoint is complete on disk. Raises MusterError on every rank if one cannot write its
        part; nothing of it is left then. Every rank must call it."""
        try:
            self._agree(self._written.result)
            self._agree(self._seal)
        finally:
            if self._ranks.rank == 0:
                shutil.rmtree(self._aside, ignore_errors=True)

    def _agree(self, part: Callable[[], None]) -> None:
        failure: BaseException | None = None
        try:
            part()
        except (Exception, CheckpointException) as error:  # whatever a full or broken disk makes torch raise
            failure = error
        failures = self._ranks.sum(torch.tensor([float(failure is not None)]))
        if failures.item():
            why = _root_cause(failure) if failure else "another rank failed"
            hint = "free or mend the disk: nothing is published before the checkpoint is there"
            raise MusterError(f"cannot write the checkpoint {self._folder}: {why}", hint)

    def _seal(self) -> None:
        """Record the digests of all files and give the folder its name: rank 0's part."""
        if self._ranks.rank:
            return
        files: dict[str, str] = {}
        for share in sorted(self._aside.glob(f"{_SHARES}*")):
            files |= json.loads(share.read_bytes())
            share.unlink()
        files[".metadata"] = file_sha256(self._aside / ".metadata")
        document = {"version": VERSION, "ranks": self._ranks.world, "files": files, **asdict(self._state)}
        sealed = {"state": document, "sha256": sha256_hex(canonical_json(document))}
        write_atomic(self._aside / STATE, canonical_json(sealed))
        put_folder(self._aside, self._folder)


def read_checkpoint(folder: Path, model: Any, optimizers: list[torch.optim.Optimizer], ranks: Ranks) -> LearnerState:
    """Load weights and optimizers in place, whatever number of ranks wrote them, and return the rest. Every rank must
    call it. Raises IntegrityError on anything amiss, ConfigError for another version's checkpoint."""
    try:
        sealed = json.loads((folder / STATE).read_bytes())
        document = sealed["state"]
        if "outer" in document:
            raise ConfigError(
                f"the checkpoint {folder} belongs to a DiLoCo run's coordinator",
                "run `muster diloco run --coordinator`, or begin a pool from its weights, in another home folder",
            )
        if document["version"] != VERSION:
            raise ConfigError(
                f"the checkpoint {folder} has format {document['version']}, this muster reads {VERSION}",
                "finish the run with the muster that began it, or start with another home folder",
            )
        if sha256_hex(canonical_json(document)) != sealed["sha256"]:
            raise ValueError("its state differs from its recorded hash")
        # Rank 0 reads all; the others' own reads go through the same files.
        if not ranks.broadcast(ranks.rank > 0 or document["files"] == file_digests(folder, (STATE,))):
            raise ValueError("its files differ from their recorded hashes")
        values = _values(model, optimizers)
        load(values, checkpoint_id=folder, process_group=ranks.side_group, no_dist=ranks.side_group is None)
        weights, states = values["model"], values["optimizer"]
        set_state_dict(model, optimizers, model_state_dict=weights, optim_state_dict=states, options=_TRAINED)
        return LearnerState(**{name: document[name] for name in LearnerState.__dataclass_fields__})
    except (OSError, ValueError, KeyError, TypeError, RuntimeError, CheckpointException) as error:
        raise IntegrityError(
            f"the checkpoint {folder} is damaged: {_root_cause(error)}",
            "remove it; training resumes from the one before",
        ) from None


def checkpoint_path(home: Path, step: int) -> Path:
    """Return the folder of a policy step's checkpoint."""
    return home / f"step-{step:06d}"


def checkpoints(home: Path) -> list[Path]:
    """Return the complete checkpoints, oldest first."""
    return sorted(path.parent for path in home.glob(f"step-{'[0-9]' * 6}/{STATE}"))


def resume(home: Path, restore: Callable[[Path], dict[str, Any]]) -> dict[str, Any] | None:
    """Let `restore` load the newest intact checkpoint and return what it does; None if none is. Log damaged ones."""
    for path in reversed(checkpoints(home)):
        try:
            return restore(path)
        except IntegrityError as error:
            log.warning("%s", error)
    return None


def _values(model: Any, optimizers: list[torch.optim.Optimizer]) -> dict[str, Any]:
    weights, states = get_state_dict(model, optimizers, options=_TRAINED)
    return {"model": weights, "optimizer": states}


def _root_cause(error: BaseException) -> str:
    """The first line of what one rank ran into, without torch's wrapping."""
    if isinstance(error, CheckpointException) and error.failures:
        error = next(iter(error.failures.values()))[0]
    return first_line(error)
