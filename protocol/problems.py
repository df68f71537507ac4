"""Which problems an environment's work is drawn from: all of them, or a filtered part.

A filter keeps some of the candidates 0 … n − 1. Of a generator, their seeds are public hashes: an owner can leave
candidates out, but not put a problem of its own in. Of a data file, they are its first rows. The configuration document
holds one bit for each.
"""

import base64
import binascii
from functools import lru_cache
from typing import Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from protocol.encoding import Document, tagged_hash, words

MAX_CANDIDATES = 1 << 22
Places = tuple[int, ...]


class ProblemFilter(Document):
    """The candidates that an offline filter kept (`muster env filter`), and how anybody can make the choice again."""

    rule: Literal["solve-rate"] = Field("solve-rate", description="How the problems were chosen.")
    candidates: int = Field(ge=1, le=MAX_CANDIDATES, description="Number of problems that were tried.")
    kept: str = Field(
        description="Base64 of one bit for each candidate, the first in the highest bit of the first byte: kept or not."
    )
    model: str = Field("", max_length=200, description="SHA-256 of the files of the model that tried them.")
    samples: int = Field(8, ge=1, le=1024, description="Tries at each problem.")
    lowest: float = Field(0.125, ge=0, le=1, description="Least share of solved tries of a kept problem.")
    highest: float = Field(0.75, ge=0, le=1, description="Greatest share of solved tries of a kept problem.")
    report: str = Field("", pattern=r"^([0-9a-f]{64}|)$", description="SHA-256 of the filter's record of solved tries.")

    @classmethod
    def of(cls, candidates: int, kept: Places, **facts: object) -> Self:
        """The filter that keeps these candidates."""
        return cls.model_validate({"candidates": candidates, "kept": _encoded(candidates, kept), **facts})

    @model_validator(mode="after")
    def _canonical(self) -> Self:
        if self.lowest > self.highest:
            raise ValueError("`lowest` is above `highest`")
        if not _kept(self.candidates, self.kept).size:
            raise ValueError("no candidate is kept")
        return self

    @property
    def places(self) -> Places:
        """The kept candidates, ascending."""
        return tuple(_kept(self.candidates, self.kept).tolist())


def candidate_seed(candidate: int) -> int:
    """Seed of a generator's candidate: the same for every pool, chosen by nobody."""
    return words(tagged_hash("muster/candidate/1", candidate), 1)[0]


def kept_candidate(chosen: ProblemFilter, draw: int) -> int:
    """The kept candidate that the 64-bit number `draw` stands for."""
    places = _kept(chosen.candidates, chosen.kept)
    return int(places[draw % len(places)])


@lru_cache(maxsize=8)  # of 16 MiB at most: the documents are strangers'
def _kept(candidates: int, kept: str) -> NDArray[np.uint32]:
    """The candidates whose bit is set, ascending. Raises ValueError unless `kept` is the base64 of one bit for each."""
    try:
        data = base64.b64decode(kept, validate=True)
    except (binascii.Error, ValueError):
        raise ValueError("`kept` is not base64") from None
    if len(data) != -(-candidates // 8):
        raise ValueError(f"`kept` holds {len(data)} bytes, {candidates} candidates take {-(-candidates // 8)}")
    bits = np.unpackbits(np.frombuffer(data, dtype=np.uint8))[:candidates]
    if base64.b64encode(np.packbits(bits).tobytes()).decode("ascii") != kept:
        raise ValueError(f"`kept` is not the base64 of {candidates} bits")
    return np.flatnonzero(bits).astype(np.uint32)


def _encoded(candidates: int, kept: Places) -> str:
    bits = np.zeros(candidates, dtype=np.uint8)
    bits[list(kept)] = 1
    return base64.b64encode(np.packbits(bits).tobytes()).decode("ascii")
