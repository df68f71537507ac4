"""Forged TOPLOC proofs: bytes that stand for nothing, and proofs of something else."""

import itertools
import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from attacks.base import Cheat, attack, other
from engines.base import Completion
from protocol.rollout_file.rows import Rollout
from protocol.seeds import Work
from protocol.toploc.codec import PRIME, PROOF_BYTES
from worker.produce import Planned, Produced

Proofs = tuple[bytes, ...]


def _forged(name: str, help: str, forge: Callable[[bytes, random.Random], bytes]) -> None:
    """An attack whose rows show `forge` of each proof instead."""

    @attack(name, help)
    class Forged(Cheat):
        def score(self, plan: Sequence[Planned], completions: Sequence[Completion]) -> list[Rollout]:
            rng = random.Random(plan[0].assignment.problem_seed)
            rows = super().score(plan, completions)
            return [replace(row, proofs=tuple(forge(proof, rng) for proof in row.proofs)) for row in rows]


def _polynomial(coefficients: Iterable[int]) -> bytes:
    return b"".join(value.to_bytes(2, "big") for value in (PRIME, *coefficients))


_CONSTANT = _polynomial([0x4040, *([0] * 127)])
_forged("proofs-zero", "all proofs are zero bytes", lambda proof, rng: bytes(PROOF_BYTES))
_forged("proofs-modulus-0", "honest coefficients under modulus 0", lambda proof, rng: bytes(2) + proof[2:])
_forged("proofs-constant", "constant polynomials: every activation claimed equal", lambda proof, rng: _CONSTANT)
_forged("proofs-random", "random polynomials", lambda proof, rng: _polynomial(rng.choices(range(PRIME), k=128)))


def _dealt(rows: Iterable[Rollout], proofs: Iterable[bytes]) -> list[Rollout]:
    """The rows with as many proofs as before, of others in their order."""
    supply = itertools.cycle(proofs)
    return [replace(row, proofs=tuple(itertools.islice(supply, len(row.proofs)))) for row in rows]


@attack("proofs-swapped", "proofs of the neighbouring rollout")
class SwappedProofs(Cheat):
    def score(self, plan: Sequence[Planned], completions: Sequence[Completion]) -> list[Rollout]:
        rows = super().score(plan, completions)
        proofs = [proof for row in rows for proof in row.proofs]
        return _dealt(rows, proofs[1:] + proofs[:1])


@attack("proofs-other-file", "proofs of its own file of another counter")
class OtherFilesProofs(Cheat):
    def make(self, work: Work) -> Produced:
        elsewhere = super().make(other(work, counter=work.id.counter + 1))
        others = [proof for row in elsewhere.rollouts for proof in row.proofs]
        return self.seal(work, _dealt(super().make(work).rollouts, others))


def _miscounted(name: str, help: str, forge: Callable[[Proofs], Proofs]) -> None:
    """An attack whose file has proofs that do not fit its tokens; the format's own writer, which refuses that, is
    bypassed."""

    @attack(name, help)
    class Miscounted(Cheat):
        def seal(self, work: Work, rollouts: Sequence[Rollout]) -> Produced:
            from protocol.rollout_file.reader import to_parquet
            from protocol.rollout_file.rows import commit

            rows = [replace(row, proofs=forge(row.proofs)) for row in rollouts]
            header = self.header(work)
            data = to_parquet(header, rows)
            return Produced(header, tuple(rows), data, commit(data, rows))


_miscounted("proofs-too-few", "leaves the last proof of every rollout out", lambda proofs: proofs[:-1])
_miscounted("proofs-too-many", "adds a proof to every rollout", lambda proofs: (*proofs, proofs[-1]))
