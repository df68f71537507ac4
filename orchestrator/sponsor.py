"""Nodes join and leave without ether or tokens: they sign, the service sends, and lends the pool's least stake.

What that can cost is bounded, however many keys somebody makes: `most` loans are open at a time, at most `a_day` are
given in 24 hours, and a borrower joins once an hour at most. So a day costs at most `a_day` stakes, if all are slashed,
and the gas of `a_day` registrations and of 24 times `most` to join and leave. Who has a stake of its own joins by
itself. A loan comes back before its node's operator can withdraw anything.
"""

import logging
import math
import time
from collections.abc import Callable

from sqlalchemy import ColumnElement, delete, func, select, update
from sqlalchemy.orm import Session

from chain.errors import ContractError, TransactionError
from chain.indexer.state import State
from chain.suite import Suite
from orchestrator.auth import HttpError
from orchestrator.chain import PoolView
from orchestrator.db import Database, MembershipRow
from orchestrator.relay import priced
from protocol.api import work
from protocol.encoding import show_tokens
from protocol.errors import printable

log = logging.getLogger("muster.orchestrator")
DAY = 86_400
MOST_WAITING = 256
RETRY_SECONDS = 10.0
REST_SECONDS = 3600.0  # after a wish, until the same node may join again
_MOST_GAS = 1_000_000  # registering takes a fraction of it
EXPIRED = "the signatures have expired: sign them again"
_AT_ONCE = 16


class Sponsor:
    """Takes signed wishes to join or leave, which wait in the database, and fulfils them in the replica that `leads`.
    `suite` sends as the service's key, which lends. Thread-safe."""

    def __init__(
        self,
        db: Database,
        view: PoolView,
        suite: Suite,
        most: int,
        a_day: int,
        leads: Callable[[], bool] = lambda: True,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._db, self._view, self._suite, self._leads, self._clock = db, view, suite, leads, clock
        self.most, self._a_day = most, a_day
        self._sent_until = 0  # what is sent is in the state of this block

    def join(self, node: str, body: work.JoinRequest) -> work.MembershipResponse:
        """Keep a node's wish to join. Raises HttpError 403 where nothing is lent, 400 or 429."""
        if self._is_member(node):
            return work.MembershipResponse(member=True)
        if not self.most:
            raise HttpError(403, "this pool's service lends no stake", "stake tokens of your own: muster node join")
        return work.MembershipResponse(member=False, reason=self._keep(node, body, body.expiry))

    def leave(self, node: str, body: work.LeaveRequest) -> work.MembershipResponse:
        """Keep a node's wish to leave. Raises HttpError 400."""
        if not self._is_member(node):
            return work.MembershipResponse(member=False)
        return work.MembershipResponse(member=True, reason=self._keep(node, body, body.expiry))

    def turn(self) -> None:
        """Take the next step of every wish that waits, if this replica leads."""
        state = self._view.state
        if not self._leads() or state.head < self._sent_until:
            return
        now, row = self._clock(), MembershipRow
        due = row.done.is_(False) & ((row.reason == "") | (row.received < now - RETRY_SECONDS))
        waiting = select(row.node, row.joins, row.lent, row.body).where(due).order_by(row.received)
        with self._db.reading() as session:
            rows = session.execute(waiting.limit(_AT_ONCE)).all()
        for node, joins, lent, body in rows:
            failed = False
            try:
                reason = self._join(state, node, lent, body) if joins else self._leave(state, node, body)
            except (ContractError, TransactionError) as error:
                reason, failed = printable(error.what, 200), isinstance(error, ContractError) and bool(error.tx_hash)
                log.warning("node %s cannot %s: %s", node, "join" if joins else "leave", reason)
            done = self._is_member(node) == joins or reason == EXPIRED or failed
            values = {"done": done, "reason": reason, "received": now if reason else MembershipRow.received}
            self._set((MembershipRow.node == node) & (MembershipRow.body == body), **values)
        if rows:
            self._sent_until = self._suite.client.head().number
            self._forget()

    def take_back(self) -> None:
        """Take back the loans of nodes that are in no pool and whose stake is free, if this replica leads."""
        if not self._leads():
            return
        state, now, own = self._view.state, self._suite.client.now(), self._suite.client.address
        with self._db.reading() as session:
            recent = MembershipRow.lent > self._clock() - DAY
            wishes = MembershipRow.joins & MembershipRow.done.is_(False) & recent
            joining = set(session.scalars(select(MembershipRow.node).where(wishes)))
        for node in state.nodes.values():
            free = not node.pool and node.release_at <= now and not node.frozen and node.node not in joining
            if free and node.loan and node.sponsor == own:
                try:
                    self._suite.stakes.withdraw(node.node, node.loan).send()
                    log.info("the stake of node %s is paid back", node.node)
                except ContractError as error:
                    log.info("the stake of node %s is not paid back yet: %s", node.node, error)

    def _is_member(self, node: str) -> bool:
        account = self._view.account(self._view.state, node)
        return account is not None and account.member

    def _keep(self, node: str, body: work.JoinRequest | work.LeaveRequest, expiry: int) -> str:
        """Store a wish in place of the node's earlier one; return why it could not be fulfilled yet, if so."""
        if not self._view.state.time < expiry <= self._clock() + DAY:
            raise HttpError(400, f"the signatures end at {expiry}", "sign them for an hour or so")
        document, joins = body.model_dump_json(), isinstance(body, work.JoinRequest)
        with self._db.session() as session:
            row = session.get(MembershipRow, node)
            if row is not None and row.body == document:
                row.done = row.done and bool(row.reason)  # a reorganisation may undo what was fulfilled
                return row.reason
            if joins:
                self._check_queue(session, row)
            lent = row.lent if row else 0.0
            values = {"joins": joins, "received": self._clock(), "lent": lent, "done": False, "reason": ""}
            session.merge(MembershipRow(node=node, body=document, **values))
        return ""

    def _check_queue(self, session: Session, row: MembershipRow | None) -> None:
        """Raise HttpError 429 where too many wait to join, or a node joined or left just now: each time costs gas."""
        rests = row is not None and (row.done or not row.joins) and row.reason != EXPIRED
        left = row.received + REST_SECONDS - self._clock() if row and rests else 0.0
        if left > 0:
            raise HttpError(429, "this node joined or left within the hour", "ask again later", math.ceil(left))
        waiting = select(func.count()).where(MembershipRow.joins, MembershipRow.done.is_(False))
        if (session.scalar(waiting) or 0) >= MOST_WAITING:
            raise HttpError(429, f"{MOST_WAITING} nodes wait to join", "ask again later", 60)

    def _join(self, state: State, node: str, lent: float, body: str) -> str:
        """Register a node, or let it join if it is registered; return why that cannot be, or empty."""
        form = work.JoinRequest.model_validate_json(body)
        record, pool = state.nodes.get(node), self._view.pool(state)
        if pool is None or self._is_member(node):
            return ""
        if state.time >= form.expiry:
            return EXPIRED
        if record is None:
            counts = lent > self._clock() - DAY  # whatever became of it
            stake, sponsorship = pool.terms.minStake, bytes.fromhex(form.sponsorship[2:])
            if not counts and (reason := self._full(state, stake)):
                return reason
            call = self._suite.stakes.register_node(node, form.operator, pool.pool, stake, form.expiry, sponsorship)
            if approval := self._suite.token.approval(call.to, stake):
                approval.send()
            gas = priced(self._suite.client, call)
            if gas > _MOST_GAS:
                return f"to register this node takes {gas} gas, of which the service pays {_MOST_GAS}"
            # Noted before it is sent: what a crash leaves unsent counts as lent, what is refused does not.
            self._set(MembershipRow.node == node, lent=lent if counts else self._clock())
            self._suite.client.send(call, gas)
            log.info("lent node %s its stake", node)
            return ""
        if record.sponsor != self._suite.client.address:
            return "this service lent the node no stake: its operator joins by itself"
        self._suite.pools.join(pool.pool, node, form.expiry, bytes.fromhex(form.join[2:])).send()
        log.info("node %s joined", node)
        return ""

    def _leave(self, state: State, node: str, body: str) -> str:
        asked = work.LeaveRequest.model_validate_json(body)
        if state.time >= asked.expiry:
            return EXPIRED
        if self._is_member(node):
            leaving = bytes.fromhex(asked.leave[2:])
            self._suite.pools.leave_pool(self._view.pool_id, node, asked.expiry, leaving).send()
            log.info("node %s left", node)
        return ""

    def _full(self, state: State, stake: int) -> str:
        """Return why no further loan of `stake` base units is given now, or empty."""
        since = self._clock() - DAY
        with self._db.reading() as session:
            recent = set(session.scalars(select(MembershipRow.node).where(MembershipRow.lent > since)))
        own = self._suite.client.address
        open_loans = {node.node for node in state.nodes.values() if node.sponsor == own and node.loan}
        if len(open_loans | {node for node in recent if node not in state.nodes}) >= self.most:
            return f"{self.most} nodes work with lent stakes, as many as this service lends to: ask again later"
        if len(recent) >= self._a_day:
            return f"{self._a_day} stakes were lent in the last 24 hours, as many as are lent: ask again later"
        if (held := self._suite.token.balance_of(own)) < stake:
            least = show_tokens(stake)
            return f"the service holds {show_tokens(held)} tokens and a stake is {least}: its owner must send it more"
        return ""

    def _set(self, rows: ColumnElement[bool], **values: object) -> None:
        with self._db.session() as session:
            session.execute(update(MembershipRow).where(rows).values(**values))

    def _forget(self) -> None:
        """Drop wishes that are fulfilled or expired; a loan is remembered for a day."""
        now, row = self._clock(), MembershipRow
        old = row.done & (row.received < now - REST_SECONDS) & (row.lent < now - DAY)
        with self._db.session() as session:
            session.execute(delete(row).where(old))
