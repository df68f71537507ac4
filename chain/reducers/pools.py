"""Pools, their members and their work."""

from chain.events import Event
from chain.judging import Lane, Round
from chain.mirrors import MAX_MIRROR, MOST_NODE_MIRRORS, Mirrors
from chain.records import Account, Pool, Status, Step, Submission, Terms
from chain.reducers.registry import ZERO, account_of, earn, freeze, on, pay, slash, submission_of, thaw
from chain.state import State
from protocol.verdict import LANE, Code

STATUSES = ("none", "open", "paused", "closing", "settled", "understaffed")


# ---- Pools: owner's side


@on("Pools", "PoolCreated")
def _pool_created(state: State, event: Event) -> None:
    a = event.args
    terms = Terms.of(a["terms"])
    state.pools[a["pool"]] = Pool(a["pool"], a["owner"], a["configHash"], terms, a["unbonding"], event.block)


@on("Pools", "PoolFunded")
def _pool_funded(state: State, event: Event) -> None:
    state.pools[event.args["pool"]].funded += event.args["amount"]


@on("Pools", "StatusSet")
def _status_set(state: State, event: Event) -> None:
    state.pools[event.args["pool"]].status = STATUSES[event.args["status"]]


@on("Pools", "LeftoverTaken")
def _leftover_taken(state: State, event: Event) -> None:
    a = event.args
    state.pools[a["pool"]].leftover += a["amount"]
    pay(state, event, "leftover", a["owner"], a["pool"], a["amount"])


@on("Pools", "StepPublished")
def _step_published(state: State, event: Event) -> None:
    a = event.args
    step = Step(
        a["step"], a["manifestHash"], a["canaryRoot"], a["seedBlock"], event.block, event.timestamp, event.tx_hash
    )
    state.pools[a["pool"]].steps.append(step)


# ---- Pools: members and their work


@on("Pools", "NodeJoined")
def _node_joined(state: State, event: Event) -> None:
    a = event.args
    account = state.accounts.setdefault((a["pool"], a["node"]), Account(a["pool"], a["node"], a["operator"]))
    account.member, account.operator = True, a["operator"]
    account.joined_step, account.limit = a["joinedStep"], a["limit"]


@on("Pools", "LimitSet")
def _limit_set(state: State, event: Event) -> None:
    account_of(state, event).limit = event.args["limit"]


@on("Pools", "NodeLeft")
def _node_left(state: State, event: Event) -> None:
    # The owner may bar a node that never joined.
    key = event.args["pool"], event.args["node"]
    operator = state.nodes[key[1]].operator if key[1] in state.nodes else ZERO
    account = state.accounts.setdefault(key, Account(*key, operator))
    account.member, account.limit = False, 0
    account.removed = account.removed or event.args["removed"]


@on("Pools", "WorkSubmitted")
def _work_submitted(state: State, event: Event) -> None:
    a = event.args
    placed = a["placed"]
    key = placed >> 128, placed >> 96 & 0xFFFFFFFF
    sub = Submission(
        *key,
        a["node"],
        step=placed >> 64 & 0xFFFFFFFF,
        counter=placed >> 40 & 0xFFFFFF,
        units=placed >> 16 & 0xFFFFFF,
        rows=placed & 0xFFFF,
        root=a["root"],
        sha256=a["fileHash"],
        block=event.block,
        time=event.timestamp,
        tx=event.tx_hash,
    )
    state.submissions[key] = sub
    pool = state.pools[sub.pool]
    pool.sequences.append(sub.sequence)
    account = state.accounts[sub.pool, sub.node]
    account.sequences.append(sub.sequence)
    account.counter = sub.counter + 1
    account.units_pending += sub.units
    lane = state.lanes.get((sub.pool, sub.lane))
    if lane is None:
        last_block = event.block + pool.terms.laneBlocks
        lane = Lane(sub.pool, sub.lane, event.block, last_block, [Round(0, seed_block=0)])
        state.lanes[sub.pool, sub.lane] = lane
    lane.sequences.append(sub.sequence)
    if len(lane.sequences) == LANE:
        lane.last_block = min(lane.last_block, event.block)
    _fix_seed(lane, pool)


def _file(state: State, event: Event) -> Submission:
    """Of an event that names pool and sequence in one word."""
    file: int = event.args["file"]
    return state.submissions[file >> 32, file & 0xFFFFFFFF]


@on("Pools", "ReceiptPresented")
def _receipt_presented(state: State, event: Event) -> None:
    sub = _file(state, event)
    lane = state.lane_of(sub)
    lane.attested |= 1 << sub.place
    _fix_seed(lane, state.pools[sub.pool])


def _fix_seed(lane: Lane, pool: Pool) -> None:
    """The seed's block as far as receipts that came with submissions say it: `LaneAttested` says it anew."""
    if lane.attested:
        last = lane.last_block + pool.terms.attestBlocks if lane.missing else lane.last_block
        lane.rounds[0].seed_block = last + 1


@on("Pools", "MirrorAnnounced")
def _mirror_announced(state: State, event: Event) -> None:
    sub = state.submissions.get((event.args["pool"], event.args["sequence"]))
    sender, uri = event.args["sender"], event.args["uri"]
    # Anybody can emit this, with any text; only its own node and the seats that had it speak for a file.
    if sub is None or len(uri) > MAX_MIRROR:
        return
    by_node = sub.node == sender
    members = [(judging, seat) for judging in state.lane_of(sub).rounds for seat in judging.seats]
    seats = [seat for judging, seat in members if state.seats[seat].voter == sender and judging.had(seat, sub.place)]
    if by_node or seats:
        mirrors = state.mirrors.setdefault((sub.pool, sub.sequence), Mirrors())
        mirrors.seats.update(dict.fromkeys(seats, uri))
        if by_node and len(mirrors.node) < MOST_NODE_MIRRORS:
            mirrors.node.append(uri)


@on("Pools", "FileSettled")
def _file_settled(state: State, event: Event) -> None:
    a = event.args
    sub = _file(state, event)
    account = state.accounts[sub.pool, sub.node]
    sub.code = sub.votes_code = a["code"]
    sub.decided_block, sub.decided_time, sub.final_time = event.block, event.timestamp, a["time"]
    account.units_pending -= sub.units
    if sub.is_paid:
        earn(account, sub)
    elif sub.status == Status.REJECTED:
        freeze(account, sub, event.timestamp)
    sub.finalized = sub.status == Status.VOID


@on("Pools", "FileDisputed")
def _file_disputed(state: State, event: Event) -> None:
    sub = submission_of(state, event)
    sub.disputed = True
    if sub.is_paid:
        account_of(state, event).units_spent += sub.units


@on("Pools", "FileResolved")
def _file_resolved(state: State, event: Event) -> None:
    sub, account = submission_of(state, event), account_of(state, event)
    was, now = sub.is_paid, Code(event.args["code"]).is_paid
    sub.code, sub.final_time = event.args["code"], event.args["time"]
    sub.disputed, sub.finalized = False, True
    if now:
        thaw(account, sub)
    if was and now:
        account.units_spent -= sub.units
    elif now:
        earn(account, sub)
    elif was:
        account.units_awarded -= sub.units
        # It was to be paid until this block; a slash bars what vests from now on.
        sub.decided_block, sub.decided_time = event.block, event.timestamp


@on("Pools", "FileFinalized")
def _file_finalized(state: State, event: Event) -> None:
    a = event.args
    sub = _file(state, event)
    sub.code, sub.finalized, sub.slashed = a["code"], True, a["slashed"]
    amount, fees = state.pending_slashes.pop(sub.node, (0, 0))
    state.pools[sub.pool].from_stakes += fees
    account = state.accounts[sub.pool, sub.node]
    account.slashed += amount
    if Code(sub.code).is_reject:
        _eject(account, sub)
    thaw(account, sub)
    if amount:
        slash(state, event, "node", sub.node, sub.code, amount, (sub.pool, sub.sequence))


def _eject(account: Account, sub: Submission) -> None:
    account.slashed_at = min(account.slashed_at or sub.decided_time, sub.decided_time)
    if not account.ejected:
        account.eject_code, account.eject_sequence = sub.code, sub.sequence
    account.ejected, account.member, account.limit = True, False, 0


@on("Pools", "FileForfeited")
def _file_forfeited(state: State, event: Event) -> None:
    sub, account = submission_of(state, event), account_of(state, event)
    sub.forfeited, sub.finalized, sub.cumulative = True, True, 0
    state.pools[sub.pool].forfeited += event.args["amount"]
    account.units_earned -= sub.units
    if sub.is_paid:
        account.units_awarded -= sub.units
    else:
        account.units_spent -= sub.units


@on("Pools", "Claimed")
def _claimed(state: State, event: Event) -> None:
    a = event.args
    account = account_of(state, event)
    account.units_spent += a["units"]
    account.paid += a["amount"]
    state.pools[a["pool"]].claimed += a["amount"]
    pay(state, event, "claim", account.operator, a["pool"], a["amount"], a["node"], a["units"])


@on("Pools", "FeePaid")
def _fee_paid(state: State, event: Event) -> None:
    a = event.args
    pool = state.pools[a["pool"]]
    pool.fees_paid += a["paid"]
    pool.fees_burnt += a["burnt"]
    if a["paid"]:
        pay(state, event, "fee", a["to"], a["pool"], a["paid"])
