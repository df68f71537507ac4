"""A large run for the dashboard's tests: nodes, files, votes, reports, and one file with all of its evidence."""

import math
import random
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

from eth_utils.address import to_checksum_address

from chain.indexer import records
from chain.indexer.projection import Projection
from chain.indexer.records import Lane, Pool, Status, Submission
from chain.indexer.state import State
from orchestrator.db import HeartbeatRow, StepReportRow
from protocol.encoding import canonical_json
from protocol.identity import WorkId
from protocol.models import load_tokenizer, save_byte_tokenizer
from protocol.rollout_file.file import write
from protocol.rollout_file.rows import Rollout, RolloutHeader
from protocol.seeds import Work
from protocol.toploc.codec import PROOF_BYTES, proof_count
from protocol.verdict import BallotDocument, Code, Finding, Measurement, Verdict, pack
from storage.keys import Kind, object_key
from storage.weights.manifest import SHARD_BYTES, Manifest, read_shard, seal, weight_files
from tests.orchestrator.chain import OWNER, POOLS, TERMS, ScriptedChain
from tests.orchestrator.conftest import POOL, Desk

FILES_PER_STEP = 1000
STEP_SECONDS = 60
# What becomes of a file whose chance is below a limit.
OUTCOMES = (
    (0.96, Code.ACCEPT),
    (0.9602, Code.REJECT_SAMPLING),
    (0.98, Code.MALFORMED),
    (0.99, Code.UNAVAILABLE),
    (1.0, Code.VOID),
)
HOSTILE = (
    "<script>document.title='owned'</script>",
    "<img src=x onerror=\"document.title='owned'\">",
    "\u202eevil\u202c txt.exe \u05e9\u05dc\u05d5\u05dd",
    "‮" + "ض" * 30,
    "W" * 64,
)


def address(number: int) -> str:
    return to_checksum_address(random.Random(number).randbytes(20))


class Crowd:
    """A state of `nodes` nodes and `files` files, built without a chain; `now` is the time at which it is looked at."""

    def __init__(self, nodes: int, files: int, seed: int = 7) -> None:
        self._draw = random.Random(seed)
        self.started = 1_790_000_000
        self.steps = max(1, math.ceil(files / FILES_PER_STEP))
        self.now = float(self.started + self.steps * STEP_SECONDS + 30)
        self.state = State(head=self.steps * STEP_SECONDS // 2, version=1)
        made, url = (b"\1" * 32, TERMS, 9, 1), "https://pool.example.org/"
        self.pool = Pool(1, OWNER.address, *made, funded=10**15, service_url=url)
        other = Pool(2, address(2), *made, status="paused", service_url="javascript:alert(1)")
        self.state.pools |= {1: self.pool, 2: other}
        for step in range(self.steps):
            time = self.started + step * STEP_SECONDS
            self.pool.steps.append(records.Step(step, b"\2" * 32, b"\3" * 32, step + 2, step + 1, time, self._hash()))
        self.members = [self._join(number) for number in range(nodes)]
        for seat in range(12):
            self.state.seats[seat] = records.Seat(
                seat, address(7000 + seat // 2), address(8000 + seat), 10**11, 1, groups=(1,)
            )
        for sequence in range(files):
            self._submit(sequence)
        self._quarrels()
        self._accuse()

    def _hash(self) -> str:
        return f"0x{self._draw.getrandbits(256):064x}"

    def _join(self, number: int) -> str:
        node, operator = address(1000 + number), address(5000 + number // 4)
        self.state.nodes[node] = records.Node(node, operator, 5 * 10**9, pool=1)
        self.state.accounts[1, node] = records.Account(1, node, operator, member=number % 41 != 40)
        return node

    def _submit(self, sequence: int) -> None:
        draw, step = self._draw, sequence // FILES_PER_STEP
        node = self.members[draw.randrange(len(self.members))]
        account, time = self.state.accounts[1, node], self.started + sequence * STEP_SECONDS // FILES_PER_STEP
        chance, newest = draw.random(), step == self.steps - 1 and sequence % FILES_PER_STEP > 600
        code = Code.NONE if newest else next(code for limit, code in OUTCOMES if chance < limit)
        units, block, done = draw.randrange(400, 2000), step * 30 + 1, code is not Code.NONE
        work, name = (step, account.counter, units, 8), sequence.to_bytes(32, "big")
        sub = Submission(1, sequence, node, *work, b"\4" * 32, name, block, time, self._hash(), code=int(code))
        sub.votes_code, sub.decided_time, sub.final_time = int(code), done * (time + 20), done * (time + 40)
        self.state.submissions[1, sequence] = sub
        self.pool.sequences.append(sequence)
        account.sequences.append(sequence)
        account.counter += 1
        if sub.status is Status.ACCEPTED:
            account.units_awarded += sub.units
        if code.is_reject:
            account.ejected, account.eject_code = True, int(code)
            account.eject_sequence, account.slashed = sequence, 5 * 10**9
            slash = records.Slash("node", node, 1, sequence, int(code), 5 * 10**9, sub.block, time, self._hash())
            self.state.slashes.append(slash)
        self._lane(sub, code)

    def _lane(self, sub: Submission, code: Code) -> None:
        lane = self.state.lanes.get((1, sub.lane))
        if lane is None:
            start = records.Round(
                seed_block=sub.block, round=0, seed=b"\5" * 32, seats=(0, 3, 7), drawn_time=sub.time + 5
            )
            lane = Lane(1, sub.lane, sub.block, sub.block + 9, [start], attested=(1 << 16) - 1)
            self.state.lanes[1, sub.lane] = lane
        lane.sequences.append(sub.sequence)
        one = lane.rounds[0]
        if code:
            for member in range(3):
                words, digest = one.reveals.get(member, (0, b"\6" * 32))
                one.reveals[member] = (words | pack([Code.NONE] * sub.place + [code]), digest)
                one.commits[member] = b"\7" * 32
            one.codes |= pack([Code.NONE] * sub.place + [code])
            one.settled = True

    def _quarrels(self) -> None:
        """A decided dispute, an open one and a canary, of the first files."""
        first = [sub for sub in self.state.submissions.values() if sub.code][:3]
        for number, sub in enumerate(first[:2], 1):
            done = number == 1
            sub.disputed = True
            jury = records.Trial(
                trial=number, pool=1, sequence=sub.sequence, size=5, seed_block=5, seats=(1, 2, 4, 6, 8)
            )
            jury.reveals, jury.code = {0: (int(Code.ACCEPT), b"\6" * 32)}, int(Code.ACCEPT) if done else 0
            self.state.trials[number] = jury
            dispute = records.Dispute(
                1, sub.sequence, address(77), number, 10**9, sub.time + 9, resolved=done, overturned=done
            )
            dispute.code, dispute.reward = int(Code.ACCEPT), 10**8
            self.state.disputes[1, sub.sequence] = dispute
        for sub in first[2:]:
            canary = records.Canary(1, sub.sequence, 0, int(Code.REJECT_SAMPLING), (3,), 10**9, sub.time)
            canary.concluded, canary.upheld, canary.slashed = True, True, {3: 2 * 10**10}
            self.state.canaries[1, sub.sequence] = canary
            self.state.seats[3].penalised += 2 * 10**10
            self.state.slashes.append(
                records.Slash("seat", "3", 1, sub.sequence, 0, 2 * 10**10, 9, sub.time, self._hash())
            )

    def _accuse(self) -> None:
        """Challenges: one upheld, one whose jury votes, one whose jury is not drawn; and one in another pool."""
        node = self.members[2]
        named = [one for one in self.state.accounts[1, node].sequences if self.state.submissions[1, one].code == 1]
        seats, votes = (0, 2, 5, 8, 9), [Code.REJECT_WEIGHTS, Code.ACCEPT, Code.REJECT_WEIGHTS, Code.REJECT_WEIGHTS]
        for number, pool in enumerate((1, 1, 1, 2), 1):
            jury = records.Trial(trial=100 + number, pool=pool, sequence=named[-1], size=5, seed_block=5)
            files = tuple(named[:16] if number == 1 else named[:number])
            bond, time, evidence = 11 * 10**9, self.started + number, b"\1" * 32
            challenge = records.NodeChallenge(
                number, pool, node, address(78), files, evidence, bond, [jury.trial], 7, time
            )
            if number < 3:
                jury.seats, jury.commits = seats, dict.fromkeys(range(6 - number), b"\7" * 32)
            if number == 1:
                jury.reveals = {member: (int(code), b"\6" * 32) for member, code in enumerate(votes)}
                challenge.outcome, challenge.code = records.ChallengeOutcome.UPHELD, int(Code.REJECT_WEIGHTS)
                challenge.slashed, challenge.back = 5 * 10**9, challenge.bond
            self.state.trials[jury.trial], self.state.challenges[number] = jury, challenge
            self.state.trial_challenges[jury.trial] = number


def serve_crowd(home: Path, nodes: int = 1000, files: int = 100_000, *, evil: bool = False) -> Desk:
    """A service over a crowd, with heartbeats, reports and evidence of file 0."""
    crowd, chain = Crowd(nodes, files), ScriptedChain()
    chain.create()
    desk = Desk(home, chain, now=crowd.now)
    config = desk.service.config
    desk.service.config = config.model_copy(update={"train": config.train.model_copy(update={"steps": 200})})
    if evil:
        crowd.pool.service_url = HOSTILE[0] * 300
        model = config.model.model_copy(update={"source": HOSTILE[1] * 300})
        desk.service.config = desk.service.config.model_copy(update={"name": HOSTILE[0] * 300, "model": model})
    give_evidence(desk, crowd.state, evil=HOSTILE if evil else ())
    desk.view.projection = Still(crowd.state)
    desk.view.refresh()
    desk.view.heard = desk.view.moved = crowd.now
    with desk.db.session() as session:
        for number, node in enumerate(crowd.members):
            if number % 23 == 5:
                continue
            beat = {
                "role": "worker",
                "name": HOSTILE[number % 5] if evil else f"rig-{number:04}",
                "engine": "vllm 0.32 H100",
                "version": "0.1.0",
                "phase": HOSTILE[(number + 1) % 5] if evil else "generating",
                "step": crowd.steps - 1,
                "weights": max(0, crowd.steps - 1 - number % 3),
                "waits": [{"what": HOSTILE[1] if evil else "a lease", "since": crowd.now - 5}] if number < 6 else [],
                "metrics": {"tokens_per_second": 900.0 + number},
            }
            age = 300.0 if number % 31 == 7 else 120.0 if number % 17 == 3 else number % 9
            session.add(HeartbeatRow(address=node, last_seen=crowd.now - age, body=canonical_json(beat).decode()))
        for step in range(1, crowd.steps):
            session.add(StepReportRow(step=step, reported=crowd.now, body=canonical_json(_report(step, desk)).decode()))
    return desk


def _report(step: int, desk: Desk) -> dict[str, object]:
    draw, rise = random.Random(step), 1 - math.exp(-step / 40)
    report: dict[str, object] = {
        "step": step,
        "consumed": list(range((step - 1) * 4, step * 4)),
        "timings": {"wait": 2.0, "train": 31.0},
        "metrics": {
            "reward": 0.1 + 0.7 * rise + draw.gauss(0, 0.015),
            "entropy": 1.2 - 0.5 * rise + draw.gauss(0, 0.02),
            "grad_norm": 0.3 + draw.random() * 0.1,
            "mismatch": 4e-5 * (1 + draw.random()),
            "kl": 1e-3 * draw.random(),
            "staleness_mean": 1 + draw.random(),
            "idle_share": 0.08 * draw.random(),
            "tokens_per_second": 9e4,
            "output_length_mean": 700 + 300 * rise,
            "clip_high": 0.002,
            "clip_low": 0.001,
        },
    }
    if step % 10 == 1:
        report["evaluation"] = desk.evaluation(step, 0.12 + 0.62 * rise)
    return report


class Still(Projection):
    """A state that does not change."""

    def __init__(self, state: State) -> None:
        self._state = state

    def refresh(self) -> bool:
        return False


# The evidence behind one file, as honest participants would leave it in a pool's bucket.


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


def _keep(desk: Desk, kind: Kind, data: bytes) -> bytes:
    digest = sha256(data).digest()
    desk.bucket.objects[object_key(kind, digest)] = data
    return digest


def _publish_tokenizer(desk: Desk) -> tuple[bytes, Path]:
    folder = Path(tempfile.mkdtemp())
    save_byte_tokenizer(folder, [" answer"])
    files = weight_files(folder)
    for file in files:
        for number in range(len(file.shards)):
            _keep(desk, "shards", read_shard(folder / file.name, SHARD_BYTES, number))
    manifest = Manifest(chain_id=31337, pools=POOLS, pool=1, step=0, parent="", dtype="float32", files=files)
    desk.bucket.objects[object_key("manifests", manifest.digest)] = seal(manifest, OWNER)
    return manifest.digest, folder


def _rollout_file(desk: Desk, sub: Submission, folder: Path, evil: Sequence[str]) -> bytes:
    tokenizer, work = load_tokenizer(folder), desk.service.config.work
    assigned = Work(WorkId(POOL, sub.node, 0, sub.counter), b"\5" * 32, b"\2" * 32)
    header = RolloutHeader(assigned, "vllm 0.32", "bf16", "H100")
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
    proofs: dict[str, Measurement] = {"exponent_mismatches": 0.04, "exponent_mismatches_reject": 0.25, "chunks": 96}
    proofs |= {"mantissa_mean": 0.0071, "mantissa_mean_reject": 0.012}
    gaps: dict[str, Measurement] = {"gap": 0.0004, "gap_reject": 0.01, "miss_rate": 0.0, "tokens": 3061}
    gaps["miss_rate_reject"] = 0.005
    findings = (
        Finding("schema", Code.ACCEPT, {"rows": 128}),
        Finding("toploc", Code.ACCEPT, proofs, note),
        Finding("sampling", Code.ACCEPT, gaps),
        Finding("rewards", Code.ACCEPT, {"mean_task_reward": 0.71}),
    )
    place = (31337, POOLS, 1, sub.sequence, sub.node, sub.step, sub.counter)
    hashes = (sub.sha256.hex(), "05" * 32, "01" * 32)
    return Verdict(
        *place,
        *hashes,
        Code.ACCEPT,
        {"engine": evil[0] if evil else "hf", "device": "H100", "dtype": "bfloat16"},
        [0, 5, 77],
        findings,
    )
