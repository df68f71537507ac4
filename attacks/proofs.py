"""Forged TOPLOC proofs: bytes that stand for nothing, and proofs of something else."""

import random
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace

from attacks.base import Cheat, attack, other
from engines.base import Completion
from protocol.proofs.codec import PRIME, PROOF_BYTES
from protocol.rollouts.schema import Rollout
from protocol.seeds import Work
from worker.produce import Planned, Produced

Proofs = tuple[bytes, ...]


class _Forged(Cheat, ABC):
    """Replaces every row's proofs."""

    @abstractmethod
    def forge(self, proofs: Proofs, rng: random.Random) -> Proofs:
        """What a row shows instead of its proofs."""

    def score(self, plan: Sequence[Planned], completions: Sequence[Completion]) -> list[Rollout]:
        rng = random.Random(plan[0].assignment.problem_seed)
        rows = super().score(plan, completions)
        return [replace(row, proofs=self.forge(row.proofs, rng)) for row in rows]


def encode(modulus: int, coefficients: Sequence[int]) -> bytes:
    return b"".join(value.to_bytes(2, "big") for value in (modulus, *coefficients))


@attack("proofs-zero", "all proofs are zero bytes")
class ZeroProofs(_Forged):
    def forge(self, proofs: Proofs, rng: random.Random) -> Proofs:
        return (b"\x00" * PROOF_BYTES,) * len(proofs)


@attack("proofs-modulus-0", "honest coefficients under modulus 0")
class ModulusZero(_Forged):
    def forge(self, proofs: Proofs, rng: random.Random) -> Proofs:
        return tuple(b"\x00\x00" + proof[2:] for proof in proofs)


@attack("proofs-constant", "polynomials that are constant: every activation claimed equal")
class ConstantProofs(_Forged):
    def forge(self, proofs: Proofs, rng: random.Random) -> Proofs:
        return (encode(PRIME, [0x4040, *([0] * 127)]),) * len(proofs)


@attack("proofs-random", "random polynomials")
class RandomProofs(_Forged):
    def forge(self, proofs: Proofs, rng: random.Random) -> Proofs:
        return tuple(encode(PRIME, [rng.randrange(PRIME) for _ in range(128)]) for _ in proofs)


@attack("proofs-swapped", "proofs of the neighbouring rollout")
class SwappedProofs(Cheat):
    def score(self, plan: Sequence[Planned], completions: Sequence[Completion]) -> list[Rollout]:
        rows = super().score(plan, completions)
        pool = [proof for row in rows for proof in row.proofs]
        pool = pool[1:] + pool[:1]
        out = []
        for row in rows:
            out.append(replace(row, proofs=tuple(pool[: len(row.proofs)])))
            pool = pool[len(row.proofs) :]
        return out


@attack("proofs-other-file", "proofs of its own file of another counter")
class OtherFilesProofs(Cheat):
    def make(self, work: Work) -> Produced:
        elsewhere = super().make(other(work, counter=work.id.counter + 1))
        others = [proof for row in elsewhere.rollouts for proof in row.proofs]
        rows = []
        for row in super().make(work).rollouts:
            count = len(row.proofs)
            rows.append(replace(row, proofs=tuple(others[:count])))
            others = others[count:] + others[:count]
        return self.seal(work, rows)


class _WrongCount(Cheat, ABC):
    """Writes a file whose proofs do not fit its tokens; the format's own writer refuses that, so it is bypassed."""

    @abstractmethod
    def forge(self, proofs: Proofs) -> Proofs:
        """What a row shows instead of its proofs."""

    def seal(self, work: Work, rollouts: Sequence[Rollout]) -> Produced:
        from protocol.rollouts.commitment import commit
        from protocol.rollouts.parquet import to_parquet

        rows = [replace(row, proofs=self.forge(row.proofs)) for row in rollouts]
        header = self.header(work)
        data = to_parquet(header, rows)
        return Produced(header, tuple(rows), data, commit(data, rows))


@attack("proofs-too-few", "leaves the last proof of every rollout out")
class TooFewProofs(_WrongCount):
    def forge(self, proofs: Proofs) -> Proofs:
        return proofs[:-1]


@attack("proofs-too-many", "adds a proof to every rollout")
class TooManyProofs(_WrongCount):
    def forge(self, proofs: Proofs) -> Proofs:
        return (*proofs, proofs[-1])
