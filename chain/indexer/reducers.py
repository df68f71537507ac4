"""How each event changes the state: one small function per event, registered by contract and name.

Everything here is pure: the same events give the same state. Nothing is undone in place; after a reorganisation the
state is computed again.
"""

from collections.abc import Callable, Iterable

from chain.indexer.logs import Event
from chain.indexer.records import (
    MAX_MIRROR,
    MOST_NODE_MIRRORS,
    Account,
    Accusation,
    Canary,
    CaseOutcome,
    Dispute,
    Lane,
    Mirrors,
    Node,
    Panel,
    Payment,
    Pool,
    Proposal,
    ProposedCall,
    Round,
    Seat,
    Slash,
    Status,
    Step,
    Submission,
    Terms,
    Trial,
    jury_commit_window,
)
from chain.indexer.state import State
from protocol.encoding import keccak
from protocol.verdict import LANE, Code

Reducer = Callable[[State, Event], None]
REDUCERS: dict[tuple[str, str], Reducer] = {}
ZERO = "0x" + "00" * 20


def on(contract: str, *names: str) -> Callable[[Reducer], Reducer]:
    """Register the reducer of events of a contract."""

    def register(reducer: Reducer) -> Reducer:
        for name in names:
            REDUCERS[contract, name] = reducer
        return reducer

    return register


def account_of(state: State, event: Event) -> Account:
    return state.accounts[event.args["pool"], event.args["node"]]


def submission_of(state: State, event: Event) -> Submission:
    return state.submissions[event.args["pool"], event.args["sequence"]]


def dispute_of(state: State, event: Event) -> Dispute:
    return state.disputes[event.args["pool"], event.args["sequence"]]


def round_of(state: State, event: Event) -> Round:
    number: int = event.args["round"]
    return state.lanes[event.args["pool"], event.args["lane"]].rounds[number]


def earn(account: Account, sub: Submission) -> None:
    account.units_awarded += sub.units
    account.units_earned += sub.units
    sub.cumulative = account.units_earned


def freeze(account: Account, sub: Submission, time: int) -> None:
    """The file keeps its node from submitting and from claiming what vests later, until it is thawed.

    The contract's NodeFrozen and NodeReleased do not name the file, and a slash thaws without them: so we count files.
    """
    if not sub.frozen:
        sub.frozen = True
        account.frozen += 1
        account.frozen_at = account.frozen_at or time


def thaw(account: Account, sub: Submission) -> None:
    if sub.frozen:
        sub.frozen = False
        account.frozen -= 1
        account.frozen_at = account.frozen_at if account.frozen else 0


def slash(
    state: State, event: Event, kind: str, who: object, code: int, amount: int, file: tuple[int, int] | None = None
) -> None:
    """Note a penalty for `file` (pool, sequence); without one, for the file that the event names."""
    pool, sequence = file or (event.args["pool"], event.args["sequence"])
    state.slashes.append(
        Slash(kind, str(who), pool, sequence, code, amount, event.block, event.timestamp, event.tx_hash)
    )


def pay(state: State, event: Event, kind: str, to: str, pool: int, amount: int, node: str = "", units: int = 0) -> None:
    state.payments.append(Payment(kind, to, pool, amount, node, units, event.block, event.timestamp, event.tx_hash))


# ---- Token


@on("MusterToken", "Transfer")
def _transfer(state: State, event: Event) -> None:
    sender, to, amount = event.args["from"], event.args["to"], event.args["value"]
    if sender != ZERO:
        state.balances[sender] = state.balances.get(sender, 0) - amount
    if to != ZERO:
        state.balances[to] = state.balances.get(to, 0) + amount
    state.transfers[sender, to] = state.transfers.get((sender, to), 0) + amount


# ---- Nodes and their stake


@on("Stakes", "NodeRegistered")
def _node_registered(state: State, event: Event) -> None:
    a = event.args
    state.nodes[a["node"]] = Node(a["node"], a["operator"], a["stake"], block=event.block)


@on("Stakes", "StakeDeposited", "StakeWithdrawn")
def _stake_set(state: State, event: Event) -> None:
    state.nodes[event.args["node"]].stake = event.args["stake"]


@on("Stakes", "NodeBound")
def _node_bound(state: State, event: Event) -> None:
    node = state.nodes[event.args["node"]]
    node.pool, node.release_at = event.args["pool"], 0


@on("Stakes", "NodeUnbound")
def _node_unbound(state: State, event: Event) -> None:
    node = state.nodes[event.args["node"]]
    node.pool, node.release_at = 0, event.args["releaseAt"]


@on("Stakes", "NodeFrozen", "NodeReleased")
def _node_frozen(state: State, event: Event) -> None:
    state.nodes[event.args["node"]].frozen = event.args["frozen"]


@on("Stakes", "NodeSlashed")
def _node_slashed(state: State, event: Event) -> None:
    a = event.args
    node = state.nodes[a["node"]]
    node.stake, node.frozen = a["stake"], a["frozen"]
    node.slashed += a["amount"]
    if not node.stake:
        node.pool = 0
    # Which file caused it is in the FileFinalized that Pools emits right after, in the same transaction.
    state.pending_slashes[a["node"]] = (a["amount"], a["fees"])


# ---- Seats


@on("Seats", "SeatOpened")
def _seat_opened(state: State, event: Event) -> None:
    a = event.args
    state.seats[a["seat"]] = Seat(a["seat"], a["owner"], a["voter"], a["bond"], a["activeFrom"])


@on("Seats", "SeatReopened")
def _seat_reopened(state: State, event: Event) -> None:
    a = event.args
    owner = state.seats[a["seat"]].owner
    state.seats[a["seat"]] = Seat(a["seat"], owner, a["voter"], a["bond"], a["activeFrom"])


@on("Seats", "SeatOptedIn")
def _seat_opted_in(state: State, event: Event) -> None:
    seat = state.seats[event.args["seat"]]
    seat.groups = (*seat.groups, event.args["group"])


@on("Seats", "SeatOptedOut")
def _seat_opted_out(state: State, event: Event) -> None:
    a = event.args
    seat = state.seats[a["seat"]]
    seat.groups = tuple(one for one in seat.groups if one != a["group"])
    seat.left_groups[a["group"]] = a["epoch"]


@on("Seats", "VoterSet")
def _voter_set(state: State, event: Event) -> None:
    state.seats[event.args["seat"]].voter = event.args["voter"]


@on("Seats", "SeatToppedUp")
def _seat_topped_up(state: State, event: Event) -> None:
    state.seats[event.args["seat"]].bond = event.args["bond"]


@on("Seats", "SeatLeft")
def _seat_left(state: State, event: Event) -> None:
    seat = state.seats[event.args["seat"]]
    seat.left_epoch, seat.evicted = event.args["epoch"], event.args["evicted"]


@on("Seats", "SeatUnbonding")
def _seat_unbonding(state: State, event: Event) -> None:
    state.seats[event.args["seat"]].release_at = event.args["releaseAt"]


@on("Seats", "SeatClosed")
def _seat_closed(state: State, event: Event) -> None:
    seat = state.seats[event.args["seat"]]
    seat.closed, seat.bond = True, 0


@on("Seats", "SeatPenalised")
def _seat_penalised(state: State, event: Event) -> None:
    seat = state.seats[event.args["seat"]]
    seat.bond = event.args["bond"]
    seat.penalised += event.args["amount"]


@on("Seats", "SeatFrozen", "SeatReleased")
def _seat_frozen(state: State, event: Event) -> None:
    state.seats[event.args["seat"]].frozen = event.args["frozen"]


STATUSES = ("none", "open", "paused", "closing", "settled", "understaffed")


# ---- Pools: owners


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


# ---- Pools: members and files


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
    if sub.status in (Status.REJECTED, Status.MALFORMED, Status.UNAVAILABLE, Status.LATE):
        state.pools[sub.pool].refused.add(sub.sequence)


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
    state.pools[sub.pool].refused.discard(sub.sequence)
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
    state.pools[sub.pool].refused.discard(sub.sequence)
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
    state.pools[sub.pool].refused.discard(sub.sequence)
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


MAX_URL = 500
"""Characters of an announced URL; the rest is cut off."""

# ---- Court


@on("Court", "ServiceSet")
def _service_set(state: State, event: Event) -> None:
    pool = state.pools[event.args["pool"]]
    pool.previous_service, pool.previous_until = pool.service, event.args["previousUntil"]
    pool.service = event.args["service"]


@on("Court", "ServiceAnnounced")
def _service_announced(state: State, event: Event) -> None:
    state.pools[event.args["pool"]].service_url = event.args["url"][:MAX_URL]


@on("Court", "LaneAttested")
def _lane_attested(state: State, event: Event) -> None:
    lane = state.lanes[event.args["pool"], event.args["lane"]]
    lane.attested, lane.rounds[0].seed_block = event.args["places"], event.args["seedBlock"]


@on("Court", "CommitteeDrawn")
def _committee_drawn(state: State, event: Event) -> None:
    drawn: int = event.args["drawn"]
    terms = state.pools[event.args["which"] >> 64].terms
    judging = _round(state, event.args["which"])
    judging.seed = (drawn & 0xFFFFFFFFFFFFFFFF).to_bytes(32, "big")
    judging.seats = tuple(seat for shift in range(64, 144, 16) if (seat := drawn >> shift & 0xFFFF))
    _begin(judging, event, terms.commitWindow, terms.revealWindow)


def _begin(panel: Panel, event: Event, commit_window: int, reveal_window: int) -> None:
    """The votes of a body that was just drawn."""
    panel.seed_block, panel.drawn_time = event.args["seedBlock"], event.timestamp
    panel.commit_until = event.timestamp + commit_window
    panel.reveal_until = panel.commit_until + reveal_window


def _ballot(state: State, event: Event) -> tuple[Round, int]:
    """The round and the member of a vote."""
    ballot: int = event.args["ballot"]
    return _round(state, ballot), ballot & 0xFF


def _round(state: State, which: int) -> Round:
    return state.lanes[which >> 64, which >> 32 & 0xFFFFFFFF].rounds[which >> 8 & 0xFF]


@on("Court", "VoteCommitted")
def _vote_committed(state: State, event: Event) -> None:
    judging, member = _ballot(state, event)
    judging.commits[member] = event.args["commitment"]


@on("Court", "VoteRevealed")
def _vote_revealed(state: State, event: Event) -> None:
    judging, member = _ballot(state, event)
    judging.commits.setdefault(member, b"")  # who voted in one call
    judging.reveals[member] = (event.args["codes"], event.args["verdictHash"])


@on("Court", "LaneSettled")
def _lane_settled(state: State, event: Event) -> None:
    done = _round(state, event.args["which"])
    done.settled, done.settled_time, done.codes = True, event.timestamp, event.args["codes"]


@on("Court", "LaneRedrawn")
def _lane_redrawn(state: State, event: Event) -> None:
    lane = state.lanes[event.args["pool"], event.args["lane"]]
    lane.rounds.append(Round(len(lane.rounds), seed_block=event.args["seedBlock"]))


@on("Court", "MemberAbsent")
def _member_absent(state: State, event: Event) -> None:
    a = event.args
    slash(state, event, "seat", a["seat"], 0, a["penalty"], (a["pool"], a["lane"] << 4))


@on("Court", "OutcomeSet")
def _outcome_set(state: State, event: Event) -> None:
    decided, shift = round_of(state, event), 4 * event.args["place"]
    decided.codes = decided.codes & ~(15 << shift) | event.args["code"] << shift


@on("Court", "MemberClosed")
def _member_closed(state: State, event: Event) -> None:
    a = event.args
    closed = round_of(state, event)
    closed.closed.add(closed.seats.index(a["seat"]))
    state.seats[a["seat"]].earned += a["paid"]
    if a["penalty"]:
        slash(state, event, "seat", a["seat"], 0, a["penalty"], (a["pool"], a["lane"] << 4))


# ---- Juries, disputes, canaries


@on("Juries", "JurySummoned")
def _jury_summoned(state: State, event: Event) -> None:
    a = event.args
    state.trials[a["trial"]] = Trial(a["trial"], a["pool"], a["sequence"], a["size"], seed_block=a["seedBlock"])


@on("Juries", "JuryDrawn")
def _jury_drawn(state: State, event: Event) -> None:
    trial = state.trials[event.args["trial"]]
    terms = state.pools[trial.pool].terms
    trial.seed, trial.seats = event.args["seed"], tuple(event.args["seats"])
    case = state.case_of(trial.trial)
    _begin(trial, event, jury_commit_window(terms, len(case.sequences) if case else 1), terms.juryRevealWindow)


@on("Juries", "JurorCommitted")
def _juror_committed(state: State, event: Event) -> None:
    state.trials[event.args["trial"]].commits[event.args["juror"]] = event.args["commitment"]


@on("Juries", "JurorRevealed")
def _juror_revealed(state: State, event: Event) -> None:
    a = event.args
    state.trials[a["trial"]].reveals[a["juror"]] = (a["code"], a["verdictHash"])


@on("Juries", "JuryConcluded")
def _jury_concluded(state: State, event: Event) -> None:
    trial = state.trials[event.args["trial"]]
    trial.settled, trial.code = True, event.args["code"]


@on("Juries", "JurorClosed")
def _juror_closed(state: State, event: Event) -> None:
    a = event.args
    trial, seat = state.trials[a["trial"]], state.seats[a["seat"]]
    trial.closed.add(trial.seats.index(a["seat"]))
    seat.earned += a["paid"]
    if a["paid"]:
        pay(state, event, "jury", seat.owner, trial.pool, a["paid"])
    if a["penalty"]:
        slash(state, event, "seat", a["seat"], 0, a["penalty"], (trial.pool, trial.sequence))


@on("Appeals", "Disputed")
def _disputed(state: State, event: Event) -> None:
    a = event.args
    key = a["pool"], a["sequence"]
    state.disputes[key] = Dispute(*key, a["disputer"], a["trial"], a["deposit"], event.timestamp)


@on("Appeals", "VerdictReached")
def _verdict_reached(state: State, event: Event) -> None:
    dispute = dispute_of(state, event)
    dispute.verdict, dispute.appeal_until = event.args["code"], event.args["appealUntil"]
    if Code(dispute.verdict).is_reject and dispute.appeal_until > event.timestamp:
        sub = submission_of(state, event)
        freeze(state.accounts[sub.pool, sub.node], sub, event.timestamp)


@on("Appeals", "Appealed")
def _appealed(state: State, event: Event) -> None:
    dispute_of(state, event).appellant = event.args["appellant"]


@on("Appeals", "DisputeResolved")
def _dispute_resolved(state: State, event: Event) -> None:
    a = event.args
    dispute = dispute_of(state, event)
    dispute.resolved, dispute.code = True, a["code"]
    dispute.overturned, dispute.reward = a["overturned"], a["reward"]


@on("Appeals", "MemberPenalised")
def _member_penalised(state: State, event: Event) -> None:
    a = event.args
    if a["amount"]:
        code = state.submissions[a["pool"], a["sequence"]].code
        slash(state, event, "seat", a["seat"], code, a["amount"])


@on("Canaries", "CanaryOpened")
def _canary_opened(state: State, event: Event) -> None:
    a = event.args
    key = a["pool"], a["sequence"]
    accused = tuple(a["accused"])
    state.canaries[key] = Canary(*key, a["row"], a["reason"], accused, a["deposit"], event.timestamp)


@on("Canaries", "CanaryContested")
def _canary_contested(state: State, event: Event) -> None:
    a = event.args
    canary = state.canaries[a["pool"], a["sequence"]]
    canary.contester, canary.trial = a["contester"], a["trial"]


@on("Canaries", "CanaryConcluded")
def _canary_concluded(state: State, event: Event) -> None:
    canary = state.canaries[event.args["pool"], event.args["sequence"]]
    canary.concluded, canary.upheld, canary.code = True, event.args["upheld"], event.args["code"]


@on("Canaries", "SeatSlashed")
def _seat_slashed(state: State, event: Event) -> None:
    a = event.args
    state.canaries[a["pool"], a["sequence"]].slashed[a["seat"]] = a["amount"]
    slash(state, event, "seat", a["seat"], int(Code.CANARY), a["amount"])


# ---- Node cases


@on("NodeChallenges", "ChallengeOpened")
def _case_opened(state: State, event: Event) -> None:
    a = event.args
    number = state.trial_cases[a["trial"]] = a["challenge"]
    state.cases[number] = Accusation(
        number, a["pool"], a["node"], a["accuser"], tuple(a["sequences"]), a["evidence"],
        bond=a["bond"], trials=[a["trial"]], block=event.block, time=event.timestamp,
    )  # fmt: skip


@on("Juries", "JuryReplaced")
def _jury_replaced(state: State, event: Event) -> None:
    case = state.case_of(event.args["trial"])
    if case is not None:
        case.trials.append(event.args["next"])
        state.trial_cases[event.args["next"]] = case.case


@on("Pools", "NodeExpelled")
def _node_expelled(state: State, event: Event) -> None:
    account = account_of(state, event)
    account.slashed_at = min(account.slashed_at or event.timestamp, event.timestamp)
    account.ejected, account.member, account.limit = True, False, 0


@on("NodeChallenges", "ChallengeConcluded")
def _case_concluded(state: State, event: Event) -> None:
    a = event.args
    case, account = state.cases[a["challenge"]], account_of(state, event)
    case.concluded(a["outcome"], a["code"], a["slashed"], a["back"])
    if case.outcome is not CaseOutcome.UPHELD:
        return
    if not account.eject_code:
        account.eject_code, account.eject_sequence, account.eject_case = case.code, case.sequences[-1], case.case
    # The order to Stakes in the same transaction; nothing was taken of a stake that stands for another pool by now.
    state.pending_slashes.pop(case.node, None)
    account.slashed += case.slashed
    if case.slashed:
        slash(state, event, "node", case.node, case.code, case.slashed, (case.pool, case.sequences[-1]))


# ---- Governance


_ROLES = {keccak(f"{name.upper()}_ROLE".encode()): name for name in ("proposer", "canceller", "executor", "guardian")}
_ROLES[bytes(32)] = "admin"


@on("Params", "ValuesSet")
def _values_set(state: State, event: Event) -> None:
    state.params[0] = dict(event.args["values"])


@on("Params", "ValuesScheduled")
def _values_scheduled(state: State, event: Event) -> None:
    state.params[event.args["time"]] = dict(event.args["values"])


@on("Params", "PausedUntil")
def _paused_until(state: State, event: Event) -> None:
    state.paused_until = event.args["time"]


@on("Timelock", "CallScheduled")
def _call_scheduled(state: State, event: Event) -> None:
    """One event per call; the first begins the proposal, anew when it was cancelled before."""
    a = event.args
    if a["index"] == 0:
        ready_at = event.timestamp + a["delay"]
        state.proposals[_key(event)] = Proposal(a["id"], [], a["predecessor"], ready_at, event.block)
    state.proposals[_key(event)].calls.append(ProposedCall(a["target"], a["value"], a["data"]))


@on("Timelock", "CallSalt", "CallExecuted", "Cancelled")
def _proposal_moved(state: State, event: Event) -> None:
    """An operation of no calls is never scheduled by an event, so it is none of ours."""
    proposal = state.proposals.get(_key(event))
    if proposal is None:
        return
    if event.name == "CallSalt":
        proposal.salt = event.args["salt"]
    else:
        proposal.status = "done" if event.name == "CallExecuted" else "cancelled"


@on("Timelock", "RoleGranted")
def _role_granted(state: State, event: Event) -> None:
    role = _role(event)
    state.roles[role] = (*state.roles.get(role, ()), event.args["account"])


@on("Timelock", "RoleRevoked")
def _role_revoked(state: State, event: Event) -> None:
    role = _role(event)
    state.roles[role] = tuple(one for one in state.roles[role] if one != event.args["account"])


def _key(event: Event) -> str:
    return "0x" + bytes(event.args["id"]).hex()


def _role(event: Event) -> str:
    role = bytes(event.args["role"])
    return _ROLES.get(role, "0x" + role.hex())


# ---- Applying events


def apply(state: State, event: Event) -> None:
    """Change the state, in place, as the event says. Events without meaning for it are ignored."""
    reducer = REDUCERS.get(event.key)
    if reducer is not None:
        reducer(state, event)
    state.head = max(state.head, event.block)


def replay(events: Iterable[Event]) -> State:
    """Return the state after `events`, in chain order."""
    state = State()
    for event in events:
        apply(state, event)
    return state
