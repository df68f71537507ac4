"""Checkpoints of the trainer: weights, optimizer, generator and counters, with their hashes, written atomically."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from protocol.encoding import canonical_json, sha256_hex
from protocol.errors import IntegrityError, first_line
from protocol.folders import file_digests, write_folder

VERSION = 1
STATE = "state.json"
WEIGHTS = "weights.safetensors"
OPTIMIZER = "optimizer.pt"


@dataclass(frozen=True)
class LearnerState:
    """Counters, the generator's state (hex) and whatever else must be as old as the weights (`extra`)."""

    step: int
    updates: int
    generator: str
    extra: dict[str, Any]


def write_checkpoint(folder: Path, model: Any, optimizer: torch.optim.Optimizer, state: LearnerState) -> None:
    """Put a complete checkpoint at `folder`, or nothing."""

    def fill(aside: Path) -> None:
        weights = {name: p.detach().cpu().contiguous() for name, p in model.named_parameters()}
        save_file(weights, str(aside / WEIGHTS))
        torch.save(optimizer.state_dict(), aside / OPTIMIZER)
        document = {"version": VERSION, "files": file_digests(aside), **asdict(state)}
        sealed = {"state": document, "sha256": sha256_hex(canonical_json(document))}
        (aside / STATE).write_bytes(canonical_json(sealed))

    write_folder(folder, fill)


def read_checkpoint(folder: Path, model: Any, optimizer: torch.optim.Optimizer) -> LearnerState:
    """Load weights and optimizer in place and return the rest. Raises IntegrityError on anything amiss."""
    try:
        sealed = json.loads((folder / STATE).read_bytes())
        document = sealed["state"]
        intact = sha256_hex(canonical_json(document)) == sealed["sha256"]
        if not intact or document.pop("version") != VERSION or document.pop("files") != file_digests(folder, (STATE,)):
            raise ValueError("its files differ from their recorded hashes")
        weights = load_file(str(folder / WEIGHTS))
        saved = torch.load(folder / OPTIMIZER, weights_only=True, map_location="cpu")
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                parameter.copy_(weights[name])
        optimizer.load_state_dict(saved)
        return LearnerState(**document)
    except (OSError, ValueError, KeyError, TypeError, RuntimeError) as error:
        raise IntegrityError(
            f"the checkpoint {folder} is damaged: {first_line(error)}",
            "remove it; training resumes from the one before",
        ) from None


def checkpoint_path(home: Path, step: int) -> Path:
    """Where the checkpoint of a policy step lies."""
    return home / f"step-{step:06d}"


def checkpoints(home: Path) -> list[Path]:
    """Complete checkpoints, oldest first."""
    return sorted(path.parent for path in home.glob(f"step-{'[0-9]' * 6}/{STATE}"))
