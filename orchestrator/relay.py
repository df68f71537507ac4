"""Relaying what nodes signed: their files, up to sixteen in one transaction of the service, and their claims.

A submission waits in the database until the chain shows its file. So a restart, a lost transaction or a reorganisation
loses none, and none is paid twice: a lane with a file that is on chain already reverts as a whole.
"""

import logging
import time
from collections.abc import Callable, Container, Iterable, Iterator
from itertools import groupby

from sqlalchemy import delete, func, select, update

from chain.client import ChainClient
from chain.contracts import Pools, SignedFile, refused_file
from chain.errors import ContractError
from chain.indexer.records import Pool
from chain.indexer.state import State
from chain.suite import Suite
from chain.transactions import Call, Receipt
from orchestrator.auth import HttpError
from orchestrator.chain import PoolView
from orchestrator.db import Database, SubmissionRow
from orchestrator.uploads import Uploads
from protocol.api import work
from protocol.errors import ConfigError, MusterError, printable
from protocol.signing import checked_address
from protocol.verdict import LANE

log = logging.getLogger("muster.orchestrator")
LANES_AT_ONCE = 8
RETRY_SECONDS, MOST_PAUSE = 10.0, 600.0
APART_SECONDS = 3600.0
# Refusals that the receipt of an earlier upload overrides
_PROMISED = frozenset({"StepOutOfRange", "NotMember"})
_GAS_ROOM = 50_000  # a lane's gas may grow until it is mined


PricedCall = tuple[Call, int]
"""A call, and the gas to send it with."""
Anchor = tuple[int, bytes]
"""Number and hash of a block that the chain must have: see `Pools.anchor`."""


def is_due(row: SubmissionRow, now: float) -> bool:
    """Return whether to try a file: a refused one is tried again after a pause that doubles up to MOST_PAUSE."""
    return not row.reason or now >= row.tried + min(max(RETRY_SECONDS, row.tried - row.received), MOST_PAUSE)


def signed_file(row: SubmissionRow) -> SignedFile:
    return SignedFile(row.node, work.SubmissionRequest.model_validate_json(row.body))


def plan(
    waiting: Iterable[SubmissionRow],
    next_counter: Callable[[str], int | None],
    now: float,
    lane_seconds: float,
    apart: Container[str] = (),
) -> list[list[SubmissionRow]]:
    """Return the lanes to send now: full ones, and shorter ones whose oldest file waits `lane_seconds`.

    `next_counter` of a node that may not submit is None. A node's files are in one lane at most, in the order of their
    counters from its next one on: what follows a gap or a refused file waits. Files that were refused come last, and
    nodes set `apart` share no lane, so that hostile ones hold up nobody."""
    runs = []
    for node, rows in groupby(sorted(waiting, key=lambda row: (row.node, row.counter)), lambda row: row.node):
        expected, run = next_counter(node), []
        for row in rows:
            if row.counter == expected and is_due(row, now):
                run.append(row)
                expected += 1
        if run:
            runs.append(run)
    runs.sort(key=lambda run: (run[0].node in apart, bool(run[0].reason), run[0].received))
    lanes: list[list[SubmissionRow]] = [[]]
    for run in runs:
        if len(lanes[-1]) == LANE or run[0].node in apart:
            lanes.append([])
        lanes[-1] += run[: LANE - len(lanes[-1])]
    due = [lane for lane in lanes if len(lane) == LANE or any(now >= row.received + lane_seconds for row in lane)]
    return due[:LANES_AT_ONCE]


class Relay:
    """Takes signed submissions of nodes and, in the replica that `leads`, sends them in lanes. `suite` sends as the
    service's key. `lane_seconds`: how long a file waits for others to fill its lane. Thread-safe."""

    def __init__(
        self,
        db: Database,
        view: PoolView,
        uploads: Uploads,
        suite: Suite,
        lane_seconds: float,
        leads: Callable[[], bool] = lambda: True,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._db, self._view, self._uploads, self._suite = db, view, uploads, suite
        self._lane_seconds, self._leads, self._clock = lane_seconds, leads, clock
        self._sent_until = 0  # what is sent is in the state of this block
        self._apart: dict[str, float] = {}  # node whose file made a mined lane revert → until when

    def take(self, node: str, body: work.SubmissionRequest) -> work.SubmissionResponse:
        """Keep a submission of the request's sender, and say what became of it. Raises HttpError 403 or 409,
        IntegrityError for a signature of somebody else or for another pool, and what `Uploads.receipt` does."""
        body.check(self._uploads.pool, node)
        receipt, state = self._uploads.receipt(node, body.sha256, body.size), self._view.state
        account = self._view.account(state, node)
        expected = account.counter if account else 0
        if account and body.counter < expected:
            file = state.submissions[self._view.pool_id, account.sequences[body.counter]]
            if file.sha256.hex() == body.sha256:
                return work.SubmissionResponse(state="landed", receipt=receipt, sequence=file.sequence)
            what = f"file {body.counter} of {node} is on chain with other bytes"
            raise HttpError(409, what, "read the counter again")
        if body.counter >= expected + work.MOST_LEASES:
            what = f"file {body.counter} is too far ahead of file {expected}, the next that the chain expects"
            raise HttpError(409, what, "wait until the earlier ones are on chain")
        reason = self._keep(node, body)
        return work.SubmissionResponse(state="refused" if reason else "waiting", receipt=receipt, reason=reason)

    def handed_in(self, node: str, expected: int) -> int:
        """Return how many files of a node wait, from counter `expected` on."""
        rows = (SubmissionRow.node == node) & (SubmissionRow.counter >= expected)
        with self._db.reading() as session:
            return session.scalar(select(func.count()).select_from(SubmissionRow).where(rows)) or 0

    def turn(self) -> None:
        """Send what is due, if this replica leads. Raises MusterError for what keeps every file from being relayed."""
        try:
            self._turn()
            self._view.unrelayed = ""
        except MusterError as error:
            self._view.unrelayed = f"files are not relayed: {error.what}"
            raise

    def _turn(self) -> None:
        state, now, pool = self._view.state, self._clock(), self._view.pool(self._view.state)
        self._check_key(state)
        if pool is None or not self._leads() or state.head < self._sent_until:
            return
        waiting = self.waiting(state, now)
        self._apart = {node: until for node, until in self._apart.items() if now < until}
        lanes = self._planned(waiting, state, now)
        due = [row for lane in lanes for row in lane]
        if not due:
            return
        # before seeds are compared: no chain on which they change takes the lane
        anchor = self._suite.pools.anchor(pool.steps[-1].seed_block if pool.steps else 0)
        # Only these: hostile nodes may hand in files of as many steps as there are, which follow a gap.
        good = self._without_stale(due, pool)
        if len(good) < len(due):
            lanes = self._planned(good, state, now)
        takes_lanes = pool.status == "open"
        calls = [call for lane in lanes for call in self._calls(lane, anchor, takes_lanes)]
        ready = [call for call in calls if call is not None]
        sent = list[Receipt]()
        try:
            for receipt in self._suite.pools.client.send_all(ready) if ready else ():
                log.info("relayed a lane in block %d", receipt.block)
                sent.append(receipt)
        except ContractError as error:
            self._set_apart(ready[len(sent)][0], error, now)
            raise
        finally:
            if ready:
                self._sent_until = self._suite.pools.client.head().number

    def _planned(self, waiting: list[SubmissionRow], state: State, now: float) -> list[list[SubmissionRow]]:
        return plan(waiting, lambda node: self._next_counter(state, node), now, self._lane_seconds, self._apart)

    def _set_apart(self, call: Call, error: ContractError, now: float) -> None:
        """Share no lane for a while with the node whose file made one revert, such as by submitting it itself."""
        if refused := refused_file(error):
            file = self._suite.pools.abi["submitLane"].inputs.named(call.data[4:])["files"][refused.index]
            self._apart[checked_address(file["node"])] = now + APART_SECONDS

    def _check_key(self, state: State) -> None:
        pool, key = self._view.pool(state), self._suite.pools.client.address
        if pool is not None and not pool.is_service(key, state.time):
            what = f"this service has the key {key}, and the pool's owner named {pool.service or 'none'}"
            raise ConfigError(what, "start it with that key, or name its own: muster pool set-service")

    def _next_counter(self, state: State, node: str) -> int | None:
        account = self._view.account(state, node)
        return account.counter if account is not None else None

    def _keep(self, node: str, body: work.SubmissionRequest) -> str:
        """Store a submission in place of another one of its counter; return why it was refused, if it was."""
        document = body.model_dump_json()
        with self._db.session() as session:
            row = session.get(SubmissionRow, (node, body.counter))
            if row is None or row.body != document:
                fresh = SubmissionRow(node=node, counter=body.counter, received=self._clock(), body=document)
                fresh.tried, fresh.reason = 0.0, ""
                row = session.merge(fresh)
            return row.reason

    def waiting(self, state: State, now: float) -> list[SubmissionRow]:
        """Return the submissions that the chain does not show, and forget the others."""
        with self._db.reading() as session:
            rows = list(session.scalars(select(SubmissionRow)))
        pool = self._view.pool(state)
        oldest = now - pool.terms.receiptWindow if pool else 0.0
        landed = {row for row in rows if row.counter < (self._next_counter(state, row.node) or 0)}
        over = landed | {row for row in rows if row.received < oldest}
        self._drop(over)
        return [row for row in rows if row not in over]

    def _without_stale(self, rows: list[SubmissionRow], pool: Pool) -> list[SubmissionRow]:
        """Return the submissions whose step has the seed that they were made from, and forget those whose step has
        another one since a reorganisation: they would be malformed, and their nodes pay. Nodes hand in again what is
        still good."""
        seeds, stale, good = dict[int, bytes | None](), set[SubmissionRow](), list[SubmissionRow]()
        for row in rows:
            file = signed_file(row).file
            if file.step not in seeds and file.step < len(pool.steps):
                seeds[file.step] = self._suite.step_seed(pool.pool, pool.steps[file.step])
            seed = seeds.get(file.step)
            if file.seed is None or (seed is not None and seed.hex() == file.seed):
                good.append(row)
            elif seed is not None:
                log.warning("file %d of %s is of another seed than step %d now has", row.counter, row.node, file.step)
                stale.add(row)
        self._drop(stale)
        return good

    def _drop(self, rows: Iterable[SubmissionRow]) -> None:
        """Forget submissions, unless their nodes handed in others meanwhile."""
        with self._db.session() as session:
            for row in rows:
                same = (SubmissionRow.node == row.node) & (SubmissionRow.counter == row.counter)
                session.execute(delete(SubmissionRow).where(same, SubmissionRow.received == row.received))

    def _calls(self, lane: list[SubmissionRow], anchor: Anchor, takes_lanes: bool) -> Iterator[PricedCall | None]:
        return self._lane(lane, anchor) if takes_lanes else (self._promised(row, anchor) for row in lane)

    def _lane(self, lane: list[SubmissionRow], anchor: Anchor) -> Iterator[PricedCall | None]:
        """Yield the call, and its gas, for those files of a lane that the contract takes now. Those that it names are
        noted with its reason, and those of the same node after it wait; what a receipt promises is sent with it."""
        while lane:
            files = [signed_file(row) for row in lane]
            call = self._suite.pools.submit_lane(self._view.pool_id, files, anchor=anchor)
            try:
                gas = priced(self._suite.pools.client, call)
            except ContractError as error:
                refused = refused_file(error)
                if refused is None:
                    raise
                bad = lane[refused.index]
                lane = [row for row in lane if row.node != bad.node or row.counter < bad.counter]
                if refused.reason.name in _PROMISED:
                    yield self._promised(bad, anchor)
                else:
                    self._note(bad, refused.reason)
            else:
                yield call, gas
                return

    def _promised(self, row: SubmissionRow, anchor: Anchor) -> PricedCall | None:
        """Return the call, and its gas, that submits a file by its receipt, None if the contract does not take that."""
        signed = signed_file(row)
        file = signed.file
        receipt = self._uploads.stored_receipt(row.node, file.sha256, file.size)
        call = self._suite.pools.submit_lane(self._view.pool_id, [signed], [receipt], anchor)
        try:
            return call, priced(self._suite.pools.client, call)
        except ContractError as error:
            refused = refused_file(error)
            self._note(row, refused.reason if refused else error)
            return None

    def _note(self, row: SubmissionRow, error: ContractError) -> None:
        """Note why a file is refused, unless it is on chain already and the state will show it, or an endpoint lags."""
        if error.name in ("CounterMismatch", "OtherChain"):
            return
        reason = printable(error.what, 200)
        if reason != row.reason:
            log.warning("file %d of %s is not relayed: %s", row.counter, row.node, reason)
        same = (SubmissionRow.node == row.node) & (SubmissionRow.counter == row.counter)
        noted = update(SubmissionRow).where(same, SubmissionRow.received == row.received)
        with self._db.session() as session:
            session.execute(noted.values(tried=self._clock(), reason=reason))


def priced(client: ChainClient, call: Call) -> int:
    """Return the gas to send a call with. Raises ContractError if it would be refused."""
    return client.estimate(call) * 5 // 4 + _GAS_ROOM


class Claims:
    """Claims what has vested for every node of the pool, in the replica that `leads`: operators are paid without
    ether."""

    def __init__(self, view: PoolView, pools: Pools, leads: Callable[[], bool] = lambda: True) -> None:
        self._view, self._pools, self._leads = view, pools, leads

    def turn(self) -> None:
        """Send one claim for every node that has something to claim."""
        if not self._leads():
            return
        state, client = self._view.state, self._pools.client
        now, pool = client.now(), self._view.pool_id
        nodes = [node for (number, node), account in state.accounts.items() if number == pool and account.units_awarded]
        hints = [hint for node in nodes if (hint := state.claim_hint(pool, node, now)) is not None]
        for first in range(0, len(hints), LANE):
            ready = list[PricedCall]()
            for hint in hints[first : first + LANE]:
                call = self._pools.claim(hint)
                try:
                    ready.append((call, priced(client, call)))
                except ContractError as error:
                    log.info("nothing is claimed for %s: %s", hint.node, error)
            if ready:
                log.info("claimed for %d nodes", len(list(client.send_all(ready))))
