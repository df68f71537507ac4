"""Checks a published curriculum mask. It follows from chain and bucket: nobody has to be believed."""

from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from dataset.export import MAX_CONFIG_BYTES, PoolOnChain
from dataset.verify import DatasetFindings
from protocol.config import PoolConfig
from protocol.curriculum import CurriculumMask, Difficulty
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
            (
                curriculum.called,
                curriculum.kept,
                self.mask.count(index, Difficulty.HARD),
                self.mask.count(index, Difficulty.EASY),
            )
            for index, curriculum in self.config.curricula.items()
        ]


def check_mask(source: PoolOnChain, objects: OpenObject, step: int) -> CheckedMask:
    """Recompute the mask of policy step `step`. `objects` opens what is in the pool's bucket. Raises ConfigError where
    there is no such mask, IntegrityError for bytes that are not the chain's, and what `objects` raises."""
    pool = source.state.pools[source.pool_id.pool]
    if not 0 <= step < len(pool.steps):
        what = f"pool {pool.pool} has no policy step {step}"
        raise ConfigError(what, f"it has published {len(pool.steps)}, from 0 on")
    data = objects(object_key("configs", pool.config_hash), MAX_CONFIG_BYTES)
    config = PoolConfig.parse(data, "the pool's configuration document")
    if not config.curricula:
        raise ConfigError(f"pool {pool.pool} has no curriculum", "its work is drawn from all problems, at every step")
    mask = published_mask(config, objects, pool.steps[step].manifest, source.scope)
    counted = counted_files(source.state, config, pool.pool, step)

    tries = partial(read_tries, config, objects)
    expected = expected_mask(source.state, config, pool.pool, step, tries, mask.left_out)
    findings = DatasetFindings()
    for index, curriculum in config.curricula.items():
        for number, (published, right) in enumerate(zip(mask.codes[index], expected.codes[index], strict=True)):
            if published != right:
                claimed, correct = _DESCRIPTIONS[published], _DESCRIPTIONS[right]
                what = f"problem {number} of {curriculum.called} {claimed}; by chain and bucket it {correct}"
                findings.add("mask", what)
    served = {sub.sequence: sub for sub in counted}
    for sequence in mask.left_out:
        if sequence not in served:
            findings.add("left out", f"file {sequence} is listed as left out, but does not count for this step")
            continue
        with suppress(MissingObjectError, IntegrityError):
            tries(served[sequence])
            findings.add("left out", f"file {sequence} is left out as unavailable, and can be had")
    return CheckedMask(config, mask, len(served.keys() - set(mask.left_out)), findings)
