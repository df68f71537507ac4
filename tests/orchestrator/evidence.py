"""The evidence behind one file, as honest participants would leave it in a pool's bucket."""

import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from chain.indexer.records import Submission
from chain.indexer.state import State
from protocol.identity import WorkId
from protocol.models import load_tokenizer, save_byte_tokenizer
from protocol.rollout_file.file import write
from protocol.rollout_file.rows import Rollout, RolloutHeader
from protocol.seeds import Work
from protocol.toploc.codec import PROOF_BYTES, proof_count
from protocol.verdict import BallotDocument, Code, Finding, Verdict
from storage.keys import object_key
from storage.weights.manifest import Manifest, read_shards, seal, weight_files
from tests.orchestrator.chain import OWNER, POOLS
from tests.orchestrator.conftest import POOL, Desk

QUESTION, ANSWER = "What is 17 + 25? Think for 20 tokens before giving a response.", "17 + 25 = 42. The answer is 42."


def give_evidence(desk: Desk, state: State, sequence: int = 0, evil: Sequence[str] = ()) -> Submission:
    """Put the tokenizer, the rollout file and the verdict documents of a file into the desk's bucket, and name them in
    the state. `evil`: texts for notes, engines, prompts and completions."""
    sub = state.submissions[1, sequence]
    manifest, folder = _publish_tokenizer(desk)
    state.pools[1].steps[0] = replace(state.pools[1].steps[0], manifest=manifest)
    data = _rollout_file(desk, sub, folder, evil)
    sub.sha256 = _keep(desk, "rollouts", data)
    one, ballots = state.lane_of(sub).rounds[0], {}
    for member in one.reveals:
        document = BallotDocument("round 0", "05" * 32, (_verdict(sub, evil, member),))
        desk.bucket.objects[object_key("verdicts", document.digest)] = document.canonical()
        ballots[member] = (one.reveals[member][0], document.digest)
    one.reveals.update(ballots)
    return sub


def _keep(desk: Desk, kind: str, data: bytes) -> bytes:
    from hashlib import sha256

    digest = sha256(data).digest()
    desk.bucket.objects[object_key(kind, digest)] = data  # type: ignore[arg-type]
    return digest


def _publish_tokenizer(desk: Desk) -> tuple[bytes, Path]:
    folder = Path(tempfile.mkdtemp())
    save_byte_tokenizer(folder, [" answer"])
    files = weight_files(folder)
    for file in files:
        for data in read_shards(folder / file.name, 32 << 20):
            _keep(desk, "shards", data)
    manifest = Manifest(chain_id=31337, pools=POOLS, pool=1, step=0, parent="", dtype="float32", files=files)
    desk.bucket.objects[object_key("manifests", manifest.digest)] = seal(manifest, OWNER)
    return manifest.digest, folder


def _rollout_file(desk: Desk, sub: Submission, folder: Path, evil: Sequence[str]) -> bytes:
    tokenizer, work = load_tokenizer(folder), desk.service.config.work
    header = RolloutHeader(
        Work(WorkId(POOL, sub.node, 0, sub.counter), b"\5" * 32, b"\2" * 32), "vllm 0.32", "bf16", "H100"
    )
    rows = []
    for number in range(work.rows):
        texts = (evil[number % len(evil)], evil[(number + 1) % len(evil)]) if evil else (QUESTION, ANSWER)
        prompt, output = (tuple(tokenizer.encode(text))[:60] for text in texts)
        proofs = (bytes(PROOF_BYTES),) * proof_count(len(output))
        slot, sample = divmod(number, work.samples_per_problem)
        rows.append(Rollout(slot, sample, 9, 20, prompt, output, 0, (-0.5,) * len(output), 1.0, 0.0, 1.0, proofs))
    return write(header, rows)


def _verdict(sub: Submission, evil: Sequence[str], member: int) -> Verdict:
    note = evil[member % len(evil)] * 50 if evil else "every proof agrees"
    findings = (
        Finding("schema", Code.ACCEPT, {"rows": 128}),
        Finding(
            "toploc",
            Code.ACCEPT,
            {
                "exponent_mismatches": 0.04,
                "exponent_mismatches_reject": 0.25,
                "mantissa_mean": 0.0071,
                "mantissa_mean_reject": 0.012,
                "chunks": 96,
            },
            note,
        ),
        Finding(
            "sampling",
            Code.ACCEPT,
            {"gap": 0.0004, "gap_reject": 0.01, "miss_rate": 0.0, "miss_rate_reject": 0.005, "tokens": 3061},
        ),
        Finding("rewards", Code.ACCEPT, {"mean_task_reward": 0.71}),
    )
    return Verdict(
        31337,
        POOLS,
        1,
        sub.sequence,
        sub.node,
        sub.step,
        sub.counter,
        sub.sha256.hex(),
        "05" * 32,
        "01" * 32,
        Code.ACCEPT,
        {"engine": evil[0] if evil else "hf", "device": "H100", "dtype": "bfloat16"},
        [0, 5, 77],
        findings,
    )
