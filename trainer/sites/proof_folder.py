"""Proofs that sites or keeper of a run contradicted themselves, on disk from the moment they are found: a process that
is killed shows them after its restart, and anybody else can, with `muster site accuse`."""

import logging
from dataclasses import dataclass
from pathlib import Path

from pydantic import Field, ValidationError

from protocol.documents import Document
from protocol.eip712 import checked_address
from protocol.encoding import canonical_json, parse_json
from protocol.files import write_atomic
from protocol.folders import write_folder
from trainer.sites.statement_reader import FoundProof

log = logging.getLogger("muster.sites")
_SHOWING, _MOST_BYTES = "showing.json", 1 << 17


class ShowingState(Document):
    """How the showing of a proof stands: before `not_before` (Unix time) it is not tried; so many `sent`
    transactions. `step`: the outer step whose record a single statement contradicts."""

    step: int | None = Field(None, ge=0)
    not_before: float = 0.0
    sent: int = Field(0, ge=0)


@dataclass(frozen=True)
class KeptProof:
    """A proof and how its showing stands; `files`: its statements."""

    proof: FoundProof
    state: ShowingState
    files: tuple[Path, ...]


class ProofFolder:
    """One proof of each signer, which is all that it can be made to pay for. One thread."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def keep(self, proof: FoundProof, not_before: float) -> bool:
        """Write a proof down, unless there is one of that signer; whether it was."""
        place = self._place(proof.accused)
        if place.exists():
            return False

        def fill(aside: Path) -> None:
            for number, data in enumerate(proof.statements, 1):
                (aside / f"{number}.json").write_bytes(data)
            (aside / _SHOWING).write_bytes(_encoded(ShowingState(step=proof.step, not_before=not_before)))

        write_folder(place, fill)
        return True

    def all(self) -> list[KeptProof]:
        """In order of the signers' addresses; what is damaged is left out."""
        places = sorted(self._folder.glob("0x*")) if self._folder.is_dir() else []
        return [kept for place in places if (kept := self._read(place)) is not None]

    def note(self, kept: KeptProof, not_before: float, sent: int) -> None:
        """Say how the showing stands, before it is gone on with."""
        state = kept.state.model_copy(update={"not_before": not_before, "sent": sent})
        write_atomic(self._place(kept.proof.accused) / _SHOWING, _encoded(state))

    def drop(self, kept: KeptProof) -> None:
        """It proves nothing any more."""
        place = self._place(kept.proof.accused)
        for path in (*kept.files, place / _SHOWING):
            path.unlink(missing_ok=True)
        place.rmdir()

    def _place(self, accused: str) -> Path:
        return self._folder / accused

    def _read(self, place: Path) -> KeptProof | None:
        try:
            state = ShowingState.model_validate(parse_json((place / _SHOWING).read_bytes()))
            files = tuple(place / f"{number}.json" for number in range(1, 2 if state.step is not None else 3))
            statements = tuple(path.read_bytes()[:_MOST_BYTES] for path in files)
            return KeptProof(FoundProof(checked_address(place.name), statements, state.step), state, files)
        except (OSError, ValueError, ValidationError) as error:
            log.warning("the proof in %s cannot be used: %s", place, type(error).__name__)
            return None


def _encoded(state: ShowingState) -> bytes:
    return canonical_json(state.model_dump(mode="json"))
