"""Judge decided submissions again from public data alone, and say where the result differs from what was decided."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from protocol.chain.state import State, Submission
from protocol.engines.factory import make_engine
from protocol.errors import MusterError
from protocol.link import PoolLink
from protocol.process import ProcessConfig
from protocol.rollouts.schema import Limits
from protocol.storage.keys import object_key
from protocol.storage.missing import MissingObjectError
from protocol.verdict import Code, Verdict
from protocol.workbook import Workbook
from validator import duty
from validator.case import Facts
from validator.pipeline import judge


@dataclass(frozen=True)
class Replayed:
    """`voted`: the committee's outcome; `revealed`: every member's code; `verdict`: ours, with all figures."""

    submission: Submission
    voted: Code
    revealed: tuple[Code, ...]
    verdict: Verdict

    @property
    def agrees(self) -> bool:
        """Accept and unsure are one: both pay."""
        mine = self.verdict.code
        return mine == self.voted or (mine.is_accept and self.voted.is_accept)


def replay(config: ProcessConfig, sequences: Sequence[int] = ()) -> Iterator[Replayed]:
    """Judge the given submissions of the pool (all decided ones without any) as the committee's members did.

    Needs no key: chain, object store and weights are public. Raises MusterError when one of them is out of reach, or a
    named submission is unknown or undecided.
    """
    link = PoolLink(config, None)
    try:
        yield from _replay(link, config, sequences)
    finally:
        link.close()


def _replay(link: PoolLink, config: ProcessConfig, sequences: Sequence[int]) -> Iterator[Replayed]:
    rules, engine = link.pool_config(), config.engine
    state = link.refresh()
    runner = make_engine(engine.name, engine.dtype, engine.device, engine.threads, engine.batch)
    workbook: Workbook | None = None
    loaded = b""
    for file in sorted(_chosen(state, config.pool, sequences), key=lambda file: (file.step, file.sequence)):
        facts = _facts(link, state, file)
        if facts.manifest != loaded:
            folder = link.weights(file.step)
            workbook = workbook or Workbook.of(rules, folder)
            runner.load(folder)
            loaded = facts.manifest
        assert workbook is not None
        verdict = judge(facts, _bytes(link, file, Limits.of(rules.work)), rules, workbook, runner)
        decided = duty.deciding_round(state, file)
        revealed = tuple(Code(decided.code_at(file.place, member)) for member in range(len(decided.seats)))
        yield Replayed(file, Code(file.votes_code), revealed, verdict)


def _chosen(state: State, pool: int, sequences: Sequence[int]) -> list[Submission]:
    decided = {file.sequence: file for file in state.submissions_of(pool) if file.votes_code not in (0, Code.VOID)}
    for sequence in sequences:
        if sequence not in decided:
            raise MusterError(
                f"submission {sequence} of pool {pool} is unknown or not decided", "see muster pool status"
            )
    return [decided[sequence] for sequence in sequences] if sequences else list(decided.values())


def _facts(link: PoolLink, state: State, file: Submission) -> Facts:
    pool = state.pools[file.pool]
    seed = link.seed(pool.steps[file.step])
    if seed is None:
        raise MusterError(f"the seed of step {file.step} is not confirmed", "try again in a few blocks")
    lane_seed = duty.deciding_round(state, file).seed
    return duty.facts_of(link.deployment.chain_id, link.pools, pool, file, seed, lane_seed)


def _bytes(link: PoolLink, file: Submission, limits: Limits) -> bytes | None:
    try:
        return link.objects(object_key("rollouts", file.sha256), limits.file_bytes)
    except MissingObjectError:
        return None
