"""What a seat says where it could not judge. A pool that names a family reaches seats that never chose it: all they owe
it is an answer, and the answer `unavailable` is never fined. Pure."""

from collections.abc import Mapping, Sequence

from chain.indexer.records import Panel, Pool, Submission
from protocol.identity import PoolId, WorkId
from protocol.verdict import BallotDocument, Code, Finding, Verdict

_BLOCKS, _TENTH = 6, 10


def answer_margin(window: int, block_seconds: int) -> int:
    """Seconds before the end of a commit window of `window` seconds from which on an answer is due: a tenth of it, at
    least six blocks (the transaction may be lost once, or late), at most half of it."""
    return min(window // 2, max(_BLOCKS * block_seconds, window // _TENTH))


def answer_due(pool: Pool, panel: Panel, now: int, block_seconds: int, always: bool = False) -> bool:
    """Whether a drawn member that has not judged has to answer now rather than go on trying. Never before the draw,
    for until then silence is free; in a pool that its seats chose by its number only for what is `always` answered."""
    if (pool.seat_class == pool.pool and not always) or not panel.drawn or panel.settled:
        return False
    margin = answer_margin(panel.commit_until - panel.drawn_time, block_seconds)
    return panel.commit_until - margin <= now < panel.commit_until


def answer_honest(lacking: Sequence[str], needs_bytes: bool, blames: bool) -> bool:
    """Whether files that are not judged may be called unavailable; `lacking`: for each why its bytes could not be had,
    empty if they were. A committee may always: accept and unavailable never contradict each other, so the pool's owner
    alone bears it, who reached for strangers' machines with a model and windows of its own choice. A jury may only
    where the bytes were not had (`needs_bytes`: a disputer would pay for showing them), and never where its verdict
    `blames` the seats that accepted the file, who may have done no wrong."""
    return not lacking or (not blames and (all(lacking) or not needs_bytes))


def answer_document(
    where: str,
    seed: bytes,
    pools: PoolId,
    config_hash: bytes,
    files: Sequence[Submission],
    audit_seed: bytes,
    judged: Mapping[int, Verdict],
    why: Mapping[int, str],
) -> BallotDocument:
    """The verdicts on the files at the places in `judged`, and `unavailable` for all others; `why` says for what
    reason."""

    def unavailable(at: int, file: Submission) -> Verdict:
        return Verdict(
            **WorkId(pools, file.node, file.step, file.counter).flat(),
            sequence=file.sequence,
            sha256=file.sha256.hex(),
            lane_seed=audit_seed.hex(),
            config_hash=config_hash.hex(),
            code=Code.UNAVAILABLE,
            engine={},
            audited=[],
            findings=(Finding("answer", Code.UNAVAILABLE, {}, why[at]),),
        )

    verdicts = tuple(judged[at] if at in judged else unavailable(at, file) for at, file in enumerate(files))
    return BallotDocument(where, seed.hex(), verdicts)
