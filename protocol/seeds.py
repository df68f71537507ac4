"""What follows from public randomness: work, noise, audits, held-out problems (docs/reference/protocol.md, 3)."""

from dataclasses import dataclass

from protocol.config import EnvironmentConfig, PoolConfig, WorkConfig, drawn
from protocol.curriculum import CurriculumMask, unmasked_seed
from protocol.encoding import tagged_hash, words
from protocol.identity import WorkId

AUDIT_EVERYTHING = 65536


@dataclass(frozen=True)
class Work:
    """A file to be made or judged. `step_seed` and `manifest` (which names the weights) are the policy step's, 32 bytes
    each."""

    id: WorkId
    step_seed: bytes
    manifest: bytes

    @property
    def seed(self) -> bytes:
        return tagged_hash("muster/work/1", self.step_seed, self.id.node, self.id.counter)


@dataclass(frozen=True)
class Assignment:
    """Slot `slot` of a submission: which problem, and how long its answer should be (0: no target)."""

    slot: int
    problem_seed: int
    target_length: int


def step_seed(block_hash: bytes, chain_id: int, pools: str, pool: int, step: int) -> bytes:
    """Return the seed of a policy step, from the hash of the block its StepPublished event names."""
    return tagged_hash("muster/step-seed/1", block_hash, chain_id, pools, pool, step)


def jury_seed(block_hash: bytes, trial: int) -> bytes:
    """Return the seed of a jury, from the hash of the block that its draw names: eight bytes, padded to 32."""
    return tagged_hash("muster/jury-seed/1", block_hash, trial)[-8:].rjust(32, b"\0")


def assignments(work: Work, config: PoolConfig, mask: CurriculumMask | None = None) -> list[Assignment]:
    """Return the slots of a submission, in order. `mask`: of the work's policy step. Raises IntegrityError where the
    pool has a curriculum and there is no mask."""
    seed, out = work.seed, []
    for slot in range(config.work.problems_per_file):
        (draw,) = words(tagged_hash("muster/problem/1", seed, slot), 1)
        problem = unmasked_seed(config, draw, mask)
        environment = config.environments[drawn(config.environments, problem).environment]
        targets, target = targets_of(config.work, work.id.node, environment), 0
        if targets:
            (draw,) = words(tagged_hash("muster/target/1", seed, slot), 1)
            target = targets[draw % len(targets)]
        out.append(Assignment(slot, problem, target))
    return out


def noise_key(work: Work, slot: int, sample: int) -> tuple[int, int, int]:
    """Return the three 64-bit words that key the sampling noise of one completion."""
    digest = tagged_hash("muster/noise/1", work.step_seed, work.id.node, work.id.step, work.id.counter, slot, sample)
    k0, k1, k2 = words(digest, 3)
    return k0, k1, k2


def heldout_problem(config_hash: bytes, number: int, index: int) -> int:
    """Return the problem seed of problem `index` of a pool's held-out set `number`."""
    return words(tagged_hash("muster/heldout/1", config_hash, number, index), 1)[0]


def heldout_noise_key(config_hash: bytes, step: int, number: int, index: int, sample: int) -> tuple[int, int, int]:
    """Return what keys the sampling noise of one try at a held-out problem with the weights of a policy step."""
    k0, k1, k2 = words(tagged_hash("muster/heldout-noise/1", config_hash, step, number, index, sample), 3)
    return k0, k1, k2


def length_tier(node: str, tiers: int) -> int:
    """Return the tier of a node, 0 (weakest) … `tiers` − 1: the place of its address, which it had before any seed,
    among all addresses. A key from the strongest quarter is in the strongest tier of two, three and four."""
    return int(node, 16) * tiers >> 160


def targets_of(work: WorkConfig, node: str, environment: EnvironmentConfig | None = None) -> tuple[int, ...]:
    """Return the target lengths, if any, that a node's work is drawn from: the environment's own where it has some."""
    if environment is not None and environment.targets is not None:
        return environment.targets
    if not work.length_tiers:
        return work.targets
    return work.length_tiers[length_tier(node, len(work.length_tiers))]


def all_targets(work: WorkConfig, environment: EnvironmentConfig | None = None) -> tuple[int, ...]:
    """Return every target length of a pool, or of an environment that has its own, ascending."""
    if environment is not None and environment.targets is not None:
        return tuple(sorted({*environment.targets}))
    return tuple(sorted({*work.targets, *(length for lengths in work.length_tiers for length in lengths)}))


def audit_sample(lane_seed: bytes, sequence: int, rows: int, audit_rate: int) -> list[int]:
    """Return the rows (ascending, at least one) that every member and juror prefills; `audit_rate` is in 1/65536."""
    if audit_rate >= AUDIT_EVERYTHING:
        return list(range(rows))
    always = int.from_bytes(tagged_hash("muster/audit-one/1", lane_seed, sequence), "big") % rows
    return [
        row
        for row in range(rows)
        if row == always
        or int.from_bytes(tagged_hash("muster/audit/1", lane_seed, sequence, row)[-2:], "big") < audit_rate
    ]
