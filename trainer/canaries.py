"""The pool owner's canaries: files planted in secret, committed to before they are drawn, opened after the votes.

Every file that the carrier node submits is a canary: with each policy step the owner publishes the root of a tree of
sixteen salted leaves, which cover the carrier's next sixteen counters (docs/contracts.md). An opening accuses the seats
that accepted the file, and frees the carrier, whose key has to consent: the owner holds it.
"""

import logging
import threading
from concurrent.futures import Executor, ThreadPoolExecutor, wait
from dataclasses import dataclass

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
from runtime.pool_client import PoolClient
from storage.keys import object_key
from storage.weights.fetch import OpenObject

log = logging.getLogger("muster.trainer")
LEAVES = 16
_POLL_SECONDS = 1.0
_AT_ONCE = 4


@dataclass(frozen=True)
class StepCanaries:
    """The tree of one step. `secret` 32 bytes; `planted`: up to sixteen (node, counter). Unused leaves look like used
    ones, and all salts follow from the secret, so that nothing else must be kept."""

    secret: bytes
    pool: int
    step: int
    planted: tuple[tuple[str, int], ...]

    def __post_init__(self) -> None:
        if len(self.planted) > LEAVES or len(set(self.planted)) < len(self.planted):
            raise ValueError(f"a step has at most {LEAVES} different canaries")

    @property
    def root(self) -> bytes:
        return merkle.root(self._leaves())

    def opening(self, node: str, counter: int) -> Planted | None:
        """What `Canaries.open` needs for a file; None if it was not planted in this step."""
        if (node, counter) not in self.planted:
            return None
        place = self.planted.index((node, counter))
        return Planted(self._salt(place), merkle.proof(self._leaves(), place))

    def _leaves(self) -> list[bytes]:
        leaves = [
            Canaries.leaf(self._salt(place), self.pool, self.step, node, counter)
            for place, (node, counter) in enumerate(self.planted)
        ]
        padding = range(len(leaves), LEAVES)
        return leaves + [tagged_hash("muster/canary-padding/1", self.secret, self.pool, self.step, i) for i in padding]

    def _salt(self, place: int) -> bytes:
        return tagged_hash("muster/canary-salt/1", self.secret, self.pool, self.step, place)


@dataclass(frozen=True)
class CanaryPlan:
    """The canaries of every step of a pool. `carrier`: the key of the node whose files are planted, if there is
    one."""

    secret: bytes
    pool: int
    carrier: LocalAccount | None

    @classmethod
    def of(cls, owner: LocalAccount, pool: int, carrier: LocalAccount | None) -> "CanaryPlan":
        """The secret follows from the owner's key: the same after a restart, and known to nobody else."""
        return cls(tagged_hash("muster/canary-secret/1", bytes(owner.key), pool), pool, carrier)

    @property
    def node(self) -> str:
        """The carrier's address, empty without one."""
        return str(self.carrier.address) if self.carrier else ""

    def tree(self, step: int, counter: int) -> StepCanaries:
        """The tree of a step that is published when the carrier's next file has this counter."""
        planted = [(self.node, counter + place) for place in range(LEAVES if self.carrier else 0)]
        return StepCanaries(self.secret, self.pool, step, tuple(planted))

    def next_root(self, state: State, step: int) -> bytes:
        """The root to publish now with policy step `step`."""
        account = state.accounts.get((self.pool, self.node))
        return self.tree(step, account.counter if account else 0).root

    def opening(self, state: State, sub: Submission) -> Planted | None:
        """The file's place in its step's tree, found by trying the counters that the tree may have begun with."""
        root = state.pools[self.pool].steps[sub.step].canary_root
        for first in range(sub.counter, max(-1, sub.counter - LEAVES), -1):
            tree = self.tree(sub.step, first)
            if tree.root == root:
                return tree.opening(sub.node, sub.counter)
        return None


def to_open(state: State, pool: int, carrier: str, now: int, margin: int = 2) -> list[Submission]:
    """The carrier's settled files that can still be opened at chain time `now`, disputed ones too, and were not."""
    return [
        sub
        for sub in state.submissions_of(pool, carrier)
        if sub.decided_time and not sub.finalized and now + margin < sub.final_time
        if (pool, sub.sequence) not in state.canaries
    ]


def unsettled(state: State, pool: int, carrier: str) -> bool:
    """Whether a file of the carrier still waits for votes, its opening or its conclusion."""
    canaries = state.canaries
    return any(
        not sub.finalized and not ((pool, sub.sequence) in canaries and canaries[pool, sub.sequence].concluded)
        for sub in state.submissions_of(pool, carrier)
    )


class CanaryOpener:
    """A thread that opens the carrier's files, several at once: those of a lane are settled together, and what is late
    costs the carrier its stake. It runs in the trainer's process, because the owner's key must not send from two
    processes at once, but looks at the chain itself: training may take longer than a challenge window."""

    def __init__(self, plan: CanaryPlan, client: PoolClient, open_object: OpenObject, limits: Limits) -> None:
        self._plan, self._client, self._open_object, self._limits = plan, client, open_object, limits
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="canaries", daemon=True)

    def start(self) -> None:
        if self._plan.carrier:
            self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(timeout=30)

    def _run(self) -> None:
        if self._plan.carrier:
            with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="canary") as opening:
                self._watch(self._plan.carrier, opening)

    def _watch(self, carrier: LocalAccount, opening: Executor) -> None:
        while not self._stop.wait(_POLL_SECONDS):
            try:
                state = self._client.refresh()
                due = to_open(state, self._plan.pool, self._plan.node, self._client.chain.now)
            except MusterError as error:
                log.info("canaries: %s", error)
                continue
            wait([opening.submit(self._try, state, sub, carrier) for sub in due])

    def _try(self, state: State, sub: Submission, carrier: LocalAccount) -> None:
        """Open a file; one that cannot be opened does not keep the others from it."""
        try:
            self._open(state, sub, carrier)
        except MusterError as error:
            log.info("canary %d: %s", sub.sequence, error)
        except Exception:
            log.exception("canary %d cannot be opened", sub.sequence)

    def _open(self, state: State, sub: Submission, carrier: LocalAccount) -> None:
        planted = self._plan.opening(state, sub)
        if planted is None:
            log.error("file %d of the carrier was not planted with step %d", sub.sequence, sub.step)
            return
        rate = state.pools[self._plan.pool].terms.auditRate
        row = audit_sample(state.lane_of(sub).round.seed, sub.sequence, sub.rows, rate)[0]
        data = self._open_object(object_key("rollouts", sub.sha256), self._limits.file_bytes)
        content, proof = inclusion(read(data, self._limits)[1], row)
        failing = FailingRollout(row, keccak(content), proof)
        self._client.suite.canaries.open(sub, planted, carrier, failing, Code.REJECT_WEIGHTS).send()
        log.info("opened file %d as a canary", sub.sequence)
