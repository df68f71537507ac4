"""Pools: escrow, steps, membership, submissions and pay."""

from dataclasses import dataclass, replace
from typing import Any

from chain.contracts.base import ContractCall, record
from chain.contracts.token import TokenTaker
from chain.errors import ContractError
from chain.records import Submission, Terms, pack_work
from chain.transactions import Receipt
from protocol.accounts import LocalAccount
from protocol.receipts import UploadReceipt

INVITE = "Invite(uint256 pool,address node,uint256 expiry)"


@dataclass(frozen=True)
class WorkItem:
    """What a node says of its file: Merkle root and SHA-256 (32 bytes each), units and rows."""

    root: bytes
    sha256: bytes
    units: int
    rows: int

    def as_tuple(self, pool: int, step: int, counter: int) -> tuple[int, bytes, bytes]:
        """`Work(packed, root, fileHash)`."""
        return pack_work(pool, step, counter, self.units, self.rows), self.root, self.sha256


@dataclass(frozen=True)
class Submitted:
    """Where a submission landed."""

    sequence: int
    receipt: Receipt


@dataclass(frozen=True)
class PoolView:
    """What is asked of IPools.Pool now."""

    owner: str
    free: int
    steps: int
    seed_block: int
    unbonding: int
    settle_at: int


class Pools(TokenTaker):
    """Called by pool owners, operators, nodes and keepers."""

    name = "Pools"

    # ---- Owner

    def create_pool(self, terms: Terms, budget: int) -> ContractCall[int]:
        """Create an open pool and escrow `budget` grains; returns its number."""
        call = self._taking(budget, "createPool", terms.as_tuple(), budget)
        return self._returning(call, "PoolCreated", "pool")

    def fund(self, pool: int, amount: int) -> ContractCall[Receipt]:
        """Add `amount` grains to the budget."""
        return self._taking(amount, "fund", pool, amount)

    def publish_step(self, pool: int, step: int, manifest: bytes, canary_root: bytes = bytes(32)) -> ContractCall[int]:
        """Publish the next step; returns the block whose hash seeds it."""
        call = self.call("publishStep", pool, step, manifest, canary_root)
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
        return self.call("pausePool", pool)

    def resume_pool(self, pool: int) -> ContractCall[Receipt]:
        return self.call("resumePool", pool)

    def close_pool(self, pool: int) -> ContractCall[Receipt]:
        return self.call("closePool", pool)

    def settle_pool(self, pool: int) -> ContractCall[int]:
        """After the last window: returns the leftover grains sent to the owner."""
        return self._returning(self.call("settlePool", pool), "LeftoverTaken", "amount")

    def remove_node(self, pool: int, node: str) -> ContractCall[Receipt]:
        return self.call("removeNode", pool, node)

    def sign_invite(self, owner: LocalAccount, pool: int, node: str, expiry: int) -> bytes:
        """The pool owner's invite for `node`, usable until `expiry` (chain time)."""
        return self.signed(owner, "muster-pools", INVITE, pool, node, expiry)

    # ---- Operator

    def join(self, pool: int, node: str) -> ContractCall[Receipt]:
        return self.call("join", pool, node)

    def join_with_invite(self, pool: int, node: str, expiry: int, invite: bytes) -> ContractCall[Receipt]:
        return self.call("joinWithInvite", pool, node, expiry, invite)

    def leave_pool(self, pool: int, node: str) -> ContractCall[Receipt]:
        return self.call("leavePool", pool, node)

    def refresh(self, pool: int, node: str) -> ContractCall[Receipt]:
        """Recompute a member's limit after its stake grew."""
        return self.call("refresh", pool, node)

    def claim(self, submission: Submission) -> ContractCall[int]:
        """Pay everything of the submission's node that vested up to it (choose it with `State.claim_hint`); returns
        grains paid to the operator."""
        call = self.call("claim", submission.pool, submission.node, submission.sequence, submission.inner)
        return self._returning(call, "Claimed", "amount")

    # ---- Node

    def submit(
        self, pool: int, step: int, counter: int, work: WorkItem, upload: UploadReceipt | None = None
    ) -> ContractCall[Submitted]:
        """Submit one file as the client's account (the node key). With the receipt of its upload it needs no other
        attestation, and is taken although the pool has paused or closed, or the step has passed, since."""

        def landed(receipt: Receipt) -> Submitted:
            return Submitted(int(self.event(receipt, "WorkSubmitted").args["placed"]) >> 96 & 0xFFFFFFFF, receipt)

        function, more = ("submitWithReceipt", [upload.on_chain]) if upload else ("submit", [])
        call: ContractCall[Any] = self.call(function, work.as_tuple(pool, step, counter), *more)
        return replace(call, result=landed)

    def announce_mirror(self, pool: int, sequence: int, url: str) -> ContractCall[Receipt]:
        """Say where else the file of the node's own submission is served."""
        return self.call("announceMirror", pool, sequence, url)

    # ---- Keeper

    def review_seats(self, pool: int) -> ContractCall[Receipt]:
        """Let an understaffed pool take work once its class has the seats, or the reverse."""
        return self.call("reviewSeats", pool)

    def finalize(self, submission: Submission) -> ContractCall[Receipt]:
        """After the challenge window of a file that was not accepted."""
        return self.call("finalize", submission.pool, submission.sequence, submission.file_ref)

    # ---- Views

    def pool_of(self, pool: int) -> PoolView:
        return record(PoolView, self.read("poolOf", pool))

    def pool_count(self) -> int:
        return int(self.read("poolCount"))
