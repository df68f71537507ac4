"""Checks a published curriculum mask. It follows from chain and bucket: nobody has to be believed."""

from collections.abc import Sequence
from dataclasses import dataclass

from chain.indexer.records import Submission
from dataset.export import MAX_CONFIG_BYTES, PoolOnChain
from dataset.verify import DatasetFindings
from protocol.config import PoolConfig
from protocol.curriculum import CurriculumMask, Difficulty, ProblemTries
from protocol.errors import ConfigError, IntegrityError
from runtime.curriculum import counted_files, expected_mask, published_mask, read_tries
from storage.keys import MissingObjectError, object_key
from storage.weights.fetch import OpenObject

_DESCRIPTIONS = ("is drawn", "is masked as too hard", "is masked as too easy")


@dataclass(frozen=True)
class CheckedMask:
    """A step's published mask, what is wrong with it, and how many files were counted for it."""

    config: PoolConfig
    mask: CurriculumMask
    files: int
    findings: DatasetFindings

    def rows(self) -> list[tuple[str, int, int, int]]:
        """Return (environment, problems, how many are masked as too hard, as too easy) of each."""
        return [
            (one.called, one.kept, self.mask.count(index, Difficulty.HARD), self.mask.count(index, Difficulty.EASY))
            for index, one in self.config.curricula.items()
        ]


def check_mask(source: PoolOnChain, objects: OpenObject, step: int) -> CheckedMask:
    """Recompute the mask of policy step `step`. `objects` opens what is in the pool's bucket.

    Raises ConfigError where there is no such mask, IntegrityError for bytes that are not the chain's, and what
    `objects` raises: MissingObjectError if a file that counts cannot be had.
    """
    pool = source.state.pools[source.pool_id.pool]
    if not 0 <= step < len(pool.steps):
        raise ConfigError(
            f"pool {pool.pool} has no policy step {step}", f"it has published {len(pool.steps)}, from 0 on"
        )
    data = objects(object_key("configs", pool.config_hash), MAX_CONFIG_BYTES)
    config = PoolConfig.parse(data, "the pool's configuration document")
    if not config.curricula:
        raise ConfigError(f"pool {pool.pool} has no curriculum", "its work is drawn from all problems, at every step")
    mask = published_mask(config, objects, pool.steps[step].manifest, source.scope)
    counted = counted_files(source.state, config, pool.pool, step)

    def tries(sub: Submission) -> Sequence[ProblemTries]:
        return read_tries(config, objects, sub)

    expected = expected_mask(source.state, config, pool.pool, step, tries, mask.left_out)
    findings = DatasetFindings()
    _compare(config, mask, expected, findings)
    served = {sub.sequence: sub for sub in counted}
    for sequence in mask.left_out:
        if sequence not in served:
            findings.add("left out", f"file {sequence} is listed as left out, but does not count for this step")
        elif _is_served(objects, config, served[sequence]):
            findings.add("left out", f"file {sequence} is left out as unavailable, and can be had")
    return CheckedMask(config, mask, len(served.keys() - set(mask.left_out)), findings)


def _compare(config: PoolConfig, mask: CurriculumMask, expected: CurriculumMask, findings: DatasetFindings) -> None:
    for index, one in config.curricula.items():
        pairs = zip(mask.codes[index], expected.codes[index], strict=True)
        for number, (published, right) in enumerate(pairs):
            if published != right:
                claimed, correct = _DESCRIPTIONS[published], _DESCRIPTIONS[right]
                what = f"problem {number} of {one.called} {claimed}; by chain and bucket it {correct}"
                findings.add("mask", what)


def _is_served(objects: OpenObject, config: PoolConfig, sub: Submission) -> bool:
    try:
        read_tries(config, objects, sub)
    except (MissingObjectError, IntegrityError):
        return False
    return True


_LINE_BYTES = 16 << 20
