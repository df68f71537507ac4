"""The pool owner's canaries: files planted in secret, committed to before they are drawn, opened after the votes.

Every file of the decoy node is a canary. Each policy step commits to a tree of 1,024 salted leaves over the decoy's
next counters. An opening accuses the seats that accepted the file, and frees the decoy, whose key has to consent."""

import logging
import threading
from concurrent.futures import ThreadPoolExecutor

from chain.contracts import Canaries, FailingRollout, Planted
from chain.indexer.records import Submission
from chain.indexer.state import State
from protocol.accounts import LocalAccount
from protocol.encoding import keccak, tagged_hash
from protocol.errors import MusterError
from protocol.rollout_file import merkle
from protocol.rollout_file.file import read
from protocol.rollout_file.rows import Limits, inclusion
from protocol.seeds import audit_sample
from protocol.verdict import Code
from runtime.entry import essential
from runtime.pool_client import PoolClient
from runtime.signer import derived_secret
from storage.keys import object_key
from storage.weights.fetch import OpenObject
from trainer.config import CANARY_SECRET

log = logging.getLogger("muster.trainer")
LEAVES = 1024  # 2 ** Canaries.DEPTH
_TRIES = 64  # first counters that are tried: the state by which a tree was made may lack the newest files
_POLL_SECONDS = 1.0
_AT_ONCE = 4
_MARGIN = 2  # seconds of the chain in which an opening would come too late


class CanaryPlan:
    """The canaries of every step of a pool: a tree of salted leaves, over the `decoy`'s next files. Without a
    decoy leaves are random, which nobody can tell. All salts follow from the owner's key: they are the same after a
    restart. `node`: the decoy's address, or empty."""

    def __init__(self, owner: LocalAccount, pool: int, decoy: LocalAccount | None) -> None:
        self.pool, self.decoy = pool, decoy
        self.node = str(decoy.address) if decoy else ""
        self._secret = derived_secret(owner, CANARY_SECRET, pool)

    def root(self, step: int, counter: int) -> bytes:
        """Return the root of a step that is published when the decoy's next file has this counter."""
        return merkle.root(self._leaves(step, counter))

    def next_root(self, state: State, step: int) -> bytes:
        """Return the root to publish with policy step `step`."""
        account = state.accounts.get((self.pool, self.node))
        return self.root(step, account.counter if account else 0)

    def opening(self, state: State, sub: Submission) -> Planted | None:
        """Return what `Canaries.open` needs for a file, found by trying the counters that its step's tree may begin
        with: after a file that was there when the step was published, the newest first. None if it was not planted."""
        if sub.node != self.node:
            return None
        step = state.pools[self.pool].steps[sub.step]
        files = state.submissions_of(self.pool, self.node)
        firsts = {(file.block > step.block, -file.counter - 1) for file in files if file.counter < sub.counter}
        for _, negative in sorted({*firsts, (False, 0)})[:_TRIES]:
            leaves, index = self._leaves(sub.step, -negative), sub.counter + negative
            if index < LEAVES and merkle.root(leaves) == step.canary_root:
                return Planted(self._hash("salt", sub.step, index), merkle.proof(leaves, index))
        return None

    def _leaves(self, step: int, counter: int) -> list[bytes]:
        if self.decoy is None:
            return [self._hash("padding", step, index) for index in range(LEAVES)]
        salts = [self._hash("salt", step, index) for index in range(LEAVES)]
        return [Canaries.leaf(salt, self.pool, step, self.node, counter + at) for at, salt in enumerate(salts)]

    def _hash(self, what: str, step: int, index: int) -> bytes:
        return tagged_hash(f"muster/canary-{what}/1", self._secret, self.pool, step, index)


def to_open(state: State, pool: int, decoy: str, now: int) -> list[Submission]:
    """Return the decoy's settled files that can still be opened at chain time `now` and were not, disputed ones too."""
    return [
        sub
        for sub in state.submissions_of(pool, decoy)
        if sub.decided_time and not sub.finalized and now + _MARGIN < sub.final_time
        if (pool, sub.sequence) not in state.canaries
    ]


def unsettled(state: State, pool: int, decoy: str) -> bool:
    """Return whether a file of the decoy still waits for votes, its opening or its conclusion."""
    concluded = {position for position, canary in state.canaries.items() if canary.concluded}
    files = state.submissions_of(pool, decoy)
    return any(not sub.finalized and (pool, sub.sequence) not in concluded for sub in files)


class CanaryOpener:
    """A thread that opens the decoy's files, several at once: those of a lane are settled together, and a late opening
    costs the decoy its stake. Training may take longer than a challenge window."""

    def __init__(self, plan: CanaryPlan, client: PoolClient, open_object: OpenObject, limits: Limits) -> None:
        self._plan, self._client, self._open_object, self._limits = plan, client, open_object, limits
        self._stop, self._not_planted = threading.Event(), set[int]()
        self._thread = essential("canaries", self._run)

    def start(self) -> None:
        if self._plan.decoy:
            self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(timeout=30)

    def _run(self) -> None:
        with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="canary") as executor:
            while not self._stop.wait(_POLL_SECONDS):
                try:
                    state = self._client.refresh()
                    due = to_open(state, self._plan.pool, self._plan.node, self._client.chain.now)
                except MusterError as error:
                    log.info("canaries: %s", error)
                    continue
                # One that cannot be opened does not keep the others from it.
                for sub, opened in [(sub, executor.submit(self._open, state, sub)) for sub in due]:
                    failure = opened.exception()
                    if isinstance(failure, MusterError):
                        log.info("canary %d: %s", sub.sequence, failure)
                    elif failure is not None:
                        log.error("canary %d cannot be opened", sub.sequence, exc_info=failure)

    def _open(self, state: State, sub: Submission) -> None:
        if sub.sequence in self._not_planted:
            return
        planted = self._plan.opening(state, sub)
        if planted is None or self._plan.decoy is None:
            log.error(
                "file %d of the decoy was not planted with step %d: its stake will be lost", sub.sequence, sub.step
            )
            self._not_planted.add(sub.sequence)
            return
        rate = state.pools[self._plan.pool].terms.auditRate
        row = audit_sample(state.lane_of(sub).round.seed, sub.sequence, sub.rows, rate)[0]
        data = self._open_object(object_key("rollouts", sub.sha256), self._limits.file_bytes)
        content, proof = inclusion(read(data, self._limits)[1], row)
        failing = FailingRollout(row, keccak(content), proof)
        self._client.suite.canaries.open(sub, planted, self._plan.decoy, failing, Code.REJECT_WEIGHTS).send()
        log.info("opened file %d as a canary", sub.sequence)
