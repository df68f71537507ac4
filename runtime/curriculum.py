"""Which curriculum mask a policy step should have: a pure function of the chain's state and of its files.

Step k counts what was final when step k − 1 was published, by the chain's clock: the publisher of k knows it, and
anybody who computes it later finds the same. Files that were ever disputed, or tried as canaries, do not count: the
state does not keep when that ended.
"""

from collections.abc import Callable, Iterable

from chain.indexer.records import Submission
from chain.indexer.state import State
from protocol.config import PoolConfig
from protocol.curriculum import (
    MASK_FILE,
    CurriculumMask,
    SolveRate,
    Tries,
    add_tries,
    build_mask,
    count_tries,
    mask_bytes,
)
from protocol.errors import IntegrityError, MusterError
from protocol.rollout_file.file import read
from protocol.rollout_file.rows import Limits, MalformedFile
from storage.keys import check_content, object_key
from storage.weights.fetch import OpenObject
from storage.weights.manifest import MAX_STORED_BYTES, ManifestScope, unseal

# The tries of a final file, None where nobody serves it
TriesOf = Callable[[Submission], Tries | None]


class StepNotSeenError(MusterError):
    """The chain has not (yet) the policy step by whose time files count."""


def undisputed(state: State, pool: int) -> list[Submission]:
    """Return accepted files whose finality follows from the clock alone, by sequence."""
    tried = state.disputes.keys() | state.canaries.keys()
    return [sub for sub in state.accepted(pool) if (pool, sub.sequence) not in tried]


def counted(state: State, pool: int, step: int, window: int) -> list[Submission]:
    """Return the files that count for policy step `step`: those that became final after step − 1 − window was
    published, and until step − 1 was. Raises StepNotSeenError."""
    steps = state.pools[pool].steps if pool in state.pools else []
    if step > len(steps):
        raise StepNotSeenError(f"policy step {step - 1} of pool {pool} is not on chain", "wait for it")
    if step == 0:
        return []
    until = steps[step - 1].time
    since = steps[step - 1 - window].time if step - 1 >= window else -1
    return [sub for sub in undisputed(state, pool) if since < sub.final_time <= until]


def counted_files(state: State, config: PoolConfig, pool: int, step: int) -> list[Submission]:
    windows = [
        environment.curriculum.window for environment in config.curricula.values() if environment.curriculum is not None
    ]
    return counted(state, pool, step, max(windows)) if windows else []


def expected_mask(
    state: State, config: PoolConfig, pool: int, step: int, tries_of: TriesOf, left_out: Iterable[int] = ()
) -> CurriculumMask:
    """Return the mask that policy step `step` should have, without the files `left_out` and those without tries. Raises
    StepNotSeenError."""
    out = set(left_out)
    known: dict[int, Tries] = {}
    for sub in counted_files(state, config, pool, step):
        file_tries = None if sub.sequence in out else tries_of(sub)
        if file_tries is None:
            out.add(sub.sequence)
        else:
            known[sub.sequence] = file_tries
    rates: dict[int, dict[int, SolveRate]] = {}
    for environment_index, environment in config.curricula.items():
        assert environment.curriculum is not None
        files = [
            sub.sequence for sub in counted(state, pool, step, environment.curriculum.window) if sub.sequence in known
        ]
        tries = add_tries(known[sequence] for sequence in files)
        rates[environment_index] = {
            number: rate for (index, number), rate in tries.items() if index == environment_index
        }
    return build_mask(config, step, rates, out)


def read_tries(config: PoolConfig, open_object: OpenObject, sub: Submission) -> Tries:
    """Return the tries that an accepted file names, none if it is malformed, for everybody alike. Raises
    MissingObjectError, UnreachableError, IntegrityError."""
    limits = Limits.of(config.work)
    data = open_object(object_key("rollouts", sub.sha256), limits.file_bytes)
    try:
        _, rollouts = read(data, limits)
    except MalformedFile:
        return {}
    return count_tries(config, ((rollout.problem_seed, rollout.task_reward) for rollout in rollouts))


def published_mask(config: PoolConfig, open_object: OpenObject, digest: bytes, scope: ManifestScope) -> CurriculumMask:
    """Read the mask of the policy step whose manifest has this digest, without its weights. Raises IntegrityError for
    what is not the owner's or no mask, and what `open_object` raises."""
    manifest = unseal(open_object(object_key("manifests", digest), MAX_STORED_BYTES), digest, scope)
    file = next((weight_file for weight_file in manifest.files if weight_file.name == MASK_FILE), None)
    if file is None or file.size != mask_bytes(config):
        what = f"the manifest of step {manifest.step} names no curriculum mask of this pool"
        raise IntegrityError(what, "nobody can work for this step: report it to the pool's owner")
    # By its shards alone, as a node has it: its own `sha256` is only what the owner says of it.
    shards = [(shard.key, open_object(shard.key, shard.size)) for shard in file.shards]
    for key, data in shards:
        check_content(key, data)
    return CurriculumMask.decoded(config, b"".join(data for _, data in shards))
