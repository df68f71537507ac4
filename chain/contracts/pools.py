"""Pools: escrow, steps, membership, submissions and pay."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from eth_account.signers.local import LocalAccount

from chain.contracts.base import UINT24, UINT32, ContractCall, address, bytes32, integer, record
from chain.contracts.token import TokenTaker
from chain.errors import ContractError
from chain.records import Submission, Terms
from chain.transactions import Receipt
from protocol.errors import ConfigError
from protocol import eip712

INVITE = "Invite(uint256 pool,address node,uint256 expiry)"
_MAX_FREE = (1 << 64) - 1


@dataclass(frozen=True)
class WorkItem:
    """What a node says of its file: Merkle root and SHA-256 (32 bytes each), units and rows."""

    root: bytes
    sha256: bytes
    units: int
    rows: int

    def as_tuple(self) -> tuple[bytes, bytes, int, int]:
        return (
            bytes32(self.root, "root"),
            bytes32(self.sha256, "sha256"),
            integer(self.units, UINT24, "units", 1),
            integer(self.rows, 65535, "rows", 1),
        )


@dataclass(frozen=True)
class Submitted:
    """Where a submission landed."""

    sequence: int
    receipt: Receipt


@dataclass(frozen=True)
class AccountView:
    """A node in a pool now: see IPools.Account."""

    earned: int
    drawn: int
    pending: int
    limit: int
    counter: int
    joined_step: int
    frozen_at: int
    frozen: int
    slashed: bool
    removed: bool


@dataclass(frozen=True)
class SubmissionView:
    """A submission now: see IPools.Submission. `phase`: 1 pending, 2 settled, 3 disputed, 4 final."""

    phase: int
    code: int
    units: int
    time: int
    cumulative: bool


@dataclass(frozen=True)
class PoolView:
    """A pool now: see IPools.Pool; `status` 1 open, 2 paused, 3 closing, 4 settled."""

    owner: str
    status: int
    free: int
    steps: int
    sequence: int
    lane_start: int
    seed_block: int
    unbonding: int
    settle_at: int
    terms: Terms


class Pools(TokenTaker):
    """Called by pool owners, operators, nodes and keepers."""

    name = "Pools"

    # ---- Owner

    def create_pool(self, terms: Terms, budget: int) -> ContractCall[int]:
        """Create an open pool and escrow `budget` grains; returns its number."""
        call = self._taking(integer(budget, _MAX_FREE, "budget"), "createPool", terms.as_tuple(), budget)
        return self._returning(call, "PoolCreated", "pool")

    def fund(self, pool: int, amount: int) -> ContractCall[Receipt]:
        """Add `amount` grains to the budget."""
        return self._taking(integer(amount, _MAX_FREE, "amount"), "fund", pool, amount)

    def publish_step(
        self, pool: int, step: int, manifest: bytes, canary_root: bytes = bytes(32)
    ) -> ContractCall[int]:
        """Publish the next step; returns the block whose hash seeds it."""
        call = self._call(
            "publishStep", pool, step, bytes32(manifest, "manifest"), bytes32(canary_root, "canary root")
        )
        return self._returning(call, "StepPublished", "seedBlock")

    def ensure_step(self, pool: int, step: int, manifest: bytes, canary_root: bytes = bytes(32)) -> int:
        """Publish the next step, or find that it just was (by this owner, before a crash); returns its seed block."""
        try:
            return self.publish_step(pool, step, manifest, canary_root).send()
        except ContractError as error:
            view = self.pool_of(pool) if error.name == "StepMismatch" else None
            if view is None or view.steps != step + 1:
                raise
            return view.seed_block

    def pause_pool(self, pool: int) -> ContractCall[Receipt]:
        return self._call("pausePool", pool)

    def resume_pool(self, pool: int) -> ContractCall[Receipt]:
        return self._call("resumePool", pool)

    def close_pool(self, pool: int) -> ContractCall[Receipt]:
        return self._call("closePool", pool)

    def settle_pool(self, pool: int) -> ContractCall[int]:
        """After the last window: returns the leftover grains sent to the owner."""
        return self._returning(self._call("settlePool", pool), "LeftoverTaken", "amount")

    def remove_node(self, pool: int, node: str) -> ContractCall[Receipt]:
        return self._call("removeNode", pool, address(node, "node"))

    def sign_invite(self, owner: LocalAccount, pool: int, node: str, expiry: int) -> bytes:
        """The pool owner's invite for `node`, usable until `expiry` (chain time)."""
        digest = eip712.digest(self.domain("muster-pools"), INVITE, pool, address(node, "node"), expiry)
        return eip712.sign(owner, digest)

    # ---- Operator

    def join(self, pool: int, node: str) -> ContractCall[Receipt]:
        return self._call("join", pool, address(node, "node"))

    def join_with_invite(self, pool: int, node: str, expiry: int, invite: bytes) -> ContractCall[Receipt]:
        return self._call("joinWithInvite", pool, address(node, "node"), expiry, invite)

    def leave_pool(self, pool: int, node: str) -> ContractCall[Receipt]:
        return self._call("leavePool", pool, address(node, "node"))

    def refresh(self, pool: int, node: str) -> ContractCall[Receipt]:
        """Recompute a member's limit after its stake grew."""
        return self._call("refresh", pool, address(node, "node"))

    def claim(self, submission: Submission) -> ContractCall[int]:
        """Pay everything of the submission's node that vested up to it (choose it with `State.claim_hint`); returns
        grains paid to the operator."""
        call = self._call("claim", submission.pool, submission.node, submission.sequence, submission.inner)
        return self._returning(call, "Claimed", "amount")

    # ---- Node

    def submit(self, pool: int, step: int, counter: int, work: WorkItem) -> ContractCall[Submitted]:
        """Submit one file as the client's account (the node key)."""

        def landed(receipt: Receipt) -> Submitted:
            return Submitted(int(self.event(receipt, "WorkSubmitted").args["sequence"]), receipt)

        call: ContractCall[Any] = self._call("submit", pool, step, counter, work.as_tuple())
        return replace(call, result=landed)

    def submit_many(self, pool: int, step: int, counter: int, works: Sequence[WorkItem]) -> ContractCall[Receipt]:
        """Submit 1 to 16 files with consecutive counters."""
        if not 1 <= len(works) <= 16:
            raise ConfigError(f"{len(works)} files in one call", "submit 1 to 16 at once")
        return self._call("submitMany", pool, step, counter, [work.as_tuple() for work in works])

    def announce_mirror(self, pool: int, sequence: int, url: str) -> ContractCall[Receipt]:
        """Say where else the file of the node's own submission is served."""
        return self._call("announceMirror", pool, sequence, url)

    # ---- Keeper

    def finalize(self, submission: Submission) -> ContractCall[Receipt]:
        """After the challenge window of a file that was not accepted."""
        return self._call("finalize", submission.pool, submission.sequence, submission.file_ref)

    def forfeit(self, submission: Submission) -> ContractCall[Receipt]:
        """Return a slashed node's unvested pay to the budget."""
        return self._call("forfeit", submission.pool, submission.sequence, submission.file_data)

    # ---- Views

    def pool_of(self, pool: int) -> PoolView:
        values = self.read("poolOf", pool)
        return record(PoolView, {**values, "terms": Terms.of(values["terms"])})

    def pool_count(self) -> int:
        return int(self.read("poolCount"))

    def account_of(self, pool: int, node: str) -> AccountView:
        return record(AccountView, self.read("accountOf", pool, address(node, "node")))

    def submission_of(self, pool: int, sequence: int) -> SubmissionView:
        return record(SubmissionView, self.read("submissionOf", pool, sequence))

    def claimable(self, pool: int, node: str, sequence: int) -> tuple[int, int]:
        """(units, grains) that a claim naming `sequence` would pay now."""
        values = self.read("claimable", pool, address(node, "node"), integer(sequence, UINT32, "sequence"))
        return int(values[0]), int(values[1])
