"""How each event changes the state: one small function per event, registered by contract and name."""

from collections.abc import Callable

from protocol.chain.events import Event
from protocol.chain.records import (
    Account,
    Canary,
    Dispute,
    Lane,
    Node,
    Payment,
    Pool,
    Round,
    Seat,
    Slash,
    Status,
    Step,
    Submission,
    Terms,
    Trial,
    status_of,
)
from protocol.chain.state import State
from protocol.verdict import Code

Handler = Callable[[State, Event], None]
HANDLERS: dict[tuple[str, str], Handler] = {}
STATUSES = ("none", "open", "paused", "closing", "settled")
_ZERO = "0x" + "00" * 20


def on(contract: str, *names: str) -> Callable[[Handler], Handler]:
    def register(handler: Handler) -> Handler:
        for name in names:
            HANDLERS[contract, name] = handler
        return handler

    return register


# ---- Token and parameters


@on("MusterToken", "Transfer")
def _transfer(state: State, event: Event) -> None:
    sender, to, amount = event.args["from"], event.args["to"], event.args["value"]
    if sender != _ZERO:
        state.balances[sender] -= amount
    if to != _ZERO:
        state.balances[to] += amount


@on("Params", "ValuesSet")
def _values_set(state: State, event: Event) -> None:
    state.params = dict(event.args["values"])


@on("Params", "PausedSet")
def _paused_set(state: State, event: Event) -> None:
    state.paused = event.args["paused"]


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
    # Which file caused it is in the FileFinalized that Pools emits right after, in the same transaction.
    state.pending_slashes[a["node"]] = (a["amount"], a["fees"])


# ---- Seats


@on("Seats", "SeatOpened")
def _seat_opened(state: State, event: Event) -> None:
    a = event.args
    state.seats[a["seat"]] = Seat(a["seat"], a["owner"], a["voter"], a["bond"], a["activeFrom"])


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
    _pay(state, event, "leftover", a["owner"], a["pool"], a["amount"])


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
    _account(state, event).limit = event.args["limit"]


@on("Pools", "NodeLeft")
def _node_left(state: State, event: Event) -> None:
    # The owner may bar a node that never joined.
    key = event.args["pool"], event.args["node"]
    operator = state.nodes[key[1]].operator if key[1] in state.nodes else _ZERO
    account = state.accounts.setdefault(key, Account(*key, operator))
    account.member, account.limit = False, 0
    account.removed = account.removed or event.args["removed"]


@on("Pools", "WorkSubmitted")
def _work_submitted(state: State, event: Event) -> None:
    a = event.args
    key = a["pool"], a["sequence"]
    packed = a["packed"]
    sub = Submission(
        *key,
        a["node"],
        step=packed >> 64,
        counter=packed >> 40 & 0xFFFFFF,
        units=packed >> 16 & 0xFFFFFF,
        rows=packed & 0xFFFF,
        root=a["root"],
        sha256=a["fileHash"],
        block=event.block,
        time=event.timestamp,
        tx=event.tx_hash,
    )
    state.submissions[key] = sub
    pool = state.pools[sub.pool]
    pool.sequences.append(sub.sequence)
    account = _account(state, event)
    account.sequences.append(sub.sequence)
    account.counter = sub.counter + 1
    account.units_pending += sub.units
    lane = state.lanes.get((sub.pool, sub.lane))
    if lane is None:
        seed_block = event.block + pool.terms.laneBlocks + 1
        lane = Lane(sub.pool, sub.lane, event.block, event.block + pool.terms.laneBlocks, [Round(0, seed_block)])
        state.lanes[sub.pool, sub.lane] = lane
    lane.sequences.append(sub.sequence)


@on("Pools", "MirrorAnnounced")
def _mirror_announced(state: State, event: Event) -> None:
    sub = state.submissions.get((event.args["pool"], event.args["sequence"]))
    # Anybody can emit this; only the submission's own node speaks for its file.
    if sub is not None and sub.node == event.args["sender"] and len(sub.mirrors) < 8:
        sub.mirrors.append(event.args["uri"])


@on("Pools", "FileSettled")
def _file_settled(state: State, event: Event) -> None:
    a = event.args
    sub, account = _submission(state, event), _account(state, event)
    sub.code = sub.votes_code = a["code"]
    sub.decided_block, sub.decided_time, sub.final_time = event.block, event.timestamp, a["time"]
    account.units_pending -= sub.units
    if sub.status == Status.ACCEPTED:
        _earn(account, sub)
    elif sub.status == Status.REJECTED:
        _freeze(account, sub, event.timestamp)
    sub.finalized = sub.status == Status.VOID


@on("Pools", "FileDisputed")
def _file_disputed(state: State, event: Event) -> None:
    sub = _submission(state, event)
    sub.disputed = True
    if sub.status == Status.ACCEPTED:
        _account(state, event).units_drawn += sub.units


@on("Pools", "FileResolved")
def _file_resolved(state: State, event: Event) -> None:
    sub, account = _submission(state, event), _account(state, event)
    was, now = sub.status == Status.ACCEPTED, status_of(event.args["code"]) == Status.ACCEPTED
    sub.code, sub.final_time = event.args["code"], event.args["time"]
    sub.disputed, sub.finalized = False, True
    if now:
        _thaw(account, sub)
    if was and now:
        account.units_drawn -= sub.units
    elif now:
        _earn(account, sub)
    elif was:
        account.units_accepted -= sub.units
        # Its acceptance counted until this block; a slash bars what vests from now on.
        sub.decided_block, sub.decided_time = event.block, event.timestamp


@on("Pools", "FileFinalized")
def _file_finalized(state: State, event: Event) -> None:
    a = event.args
    sub = _submission(state, event)
    sub.code, sub.finalized, sub.slashed = a["code"], True, a["slashed"]
    amount, fees = state.pending_slashes.pop(a["node"], (0, 0))
    state.pools[a["pool"]].from_stakes += fees
    account = _account(state, event)
    account.slashed += amount
    _thaw(account, sub)
    if amount:
        state.slashes.append(_slash(event, "node", a["node"], a["code"], amount))


@on("Pools", "FileForfeited")
def _file_forfeited(state: State, event: Event) -> None:
    sub, account = _submission(state, event), _account(state, event)
    sub.forfeited, sub.finalized, sub.cumulative = True, True, 0
    account.units_earned -= sub.units
    if sub.status == Status.ACCEPTED:
        account.units_accepted -= sub.units
    else:
        account.units_drawn -= sub.units


@on("Pools", "NodeEjected")
def _node_ejected(state: State, event: Event) -> None:
    account, sub = _account(state, event), _submission(state, event)
    account.slashed_at = min(account.slashed_at or sub.decided_time, sub.decided_time)
    if not account.ejected:
        account.eject_code, account.eject_sequence = event.args["code"], sub.sequence
    account.ejected, account.member, account.limit = True, False, 0


@on("Pools", "Claimed")
def _claimed(state: State, event: Event) -> None:
    a = event.args
    account = _account(state, event)
    account.units_claimed += a["units"]
    account.units_drawn += a["units"]
    account.paid += a["amount"]
    state.pools[a["pool"]].claimed += a["amount"]
    _pay(state, event, "claim", a["operator"], a["pool"], a["amount"], a["node"], a["units"])


@on("Pools", "FeePaid")
def _fee_paid(state: State, event: Event) -> None:
    a = event.args
    pool = state.pools[a["pool"]]
    pool.fees_paid += a["paid"]
    pool.fees_burnt += a["burnt"]
    if a["paid"]:
        _pay(state, event, "fee", a["to"], a["pool"], a["paid"])


# ---- Court


@on("Court", "CommitteeDrawn")
def _committee_drawn(state: State, event: Event) -> None:
    a = event.args
    drawn, terms = _round(state, event), state.pools[a["pool"]].terms
    drawn.seed_block, drawn.seed, drawn.seats = a["seedBlock"], a["seed"], tuple(a["seats"])
    drawn.drawn_block, drawn.drawn_time = event.block, event.timestamp
    drawn.commit_until = event.timestamp + terms.commitWindow
    drawn.reveal_until = drawn.commit_until + terms.revealWindow


@on("Court", "VoteCommitted")
def _vote_committed(state: State, event: Event) -> None:
    _round(state, event).commits[event.args["member"]] = event.args["commitment"]


@on("Court", "VoteRevealed")
def _vote_revealed(state: State, event: Event) -> None:
    a = event.args
    _round(state, event).reveals[a["member"]] = (a["codes"], a["verdictHash"])


@on("Court", "LaneSettled")
def _lane_settled(state: State, event: Event) -> None:
    done = _round(state, event)
    done.settled, done.settled_time, done.codes = True, event.timestamp, event.args["codes"]


@on("Court", "LaneRedrawn")
def _lane_redrawn(state: State, event: Event) -> None:
    lane = state.lanes[event.args["pool"], event.args["lane"]]
    lane.rounds.append(Round(len(lane.rounds), event.args["seedBlock"]))


@on("Court", "OutcomeSet")
def _outcome_set(state: State, event: Event) -> None:
    decided, shift = _round(state, event), 4 * event.args["place"]
    decided.codes = decided.codes & ~(15 << shift) | event.args["code"] << shift


@on("Court", "MemberClosed")
def _member_closed(state: State, event: Event) -> None:
    a = event.args
    closed = _round(state, event)
    closed.closed.add(closed.seats.index(a["seat"]))
    state.seats[a["seat"]].earned += a["paid"]
    if a["penalty"]:
        sequence = a["lane"] << 4
        state.slashes.append(_slash(event, "seat", str(a["seat"]), 0, a["penalty"], sequence))


# ---- Juries, disputes, canaries


@on("Juries", "JurySummoned")
def _jury_summoned(state: State, event: Event) -> None:
    a = event.args
    state.trials[a["trial"]] = Trial(a["trial"], a["pool"], a["sequence"], a["size"], a["seedBlock"])


@on("Juries", "JuryDrawn")
def _jury_drawn(state: State, event: Event) -> None:
    a = event.args
    trial = state.trials[a["trial"]]
    terms = state.pools[trial.pool].terms
    trial.seed_block, trial.seed, trial.seats = a["seedBlock"], a["seed"], tuple(a["seats"])
    trial.drawn_time = event.timestamp
    trial.commit_until = event.timestamp + terms.juryCommitWindow
    trial.reveal_until = trial.commit_until + terms.juryRevealWindow


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
    trial.concluded, trial.code = True, event.args["code"]
    trial.fee_per_juror = event.args["feePerJuror"]


@on("Juries", "JurorClosed")
def _juror_closed(state: State, event: Event) -> None:
    a = event.args
    trial, seat = state.trials[a["trial"]], state.seats[a["seat"]]
    trial.closed.add(trial.seats.index(a["seat"]))
    seat.earned += a["paid"]
    if a["paid"]:
        _pay(state, event, "jury", seat.owner, trial.pool, a["paid"])
    if a["penalty"]:
        state.slashes.append(
            Slash(
                "seat",
                str(a["seat"]),
                trial.pool,
                trial.sequence,
                0,
                a["penalty"],
                event.block,
                event.timestamp,
                event.tx_hash,
            )
        )


@on("Appeals", "Disputed")
def _disputed(state: State, event: Event) -> None:
    a = event.args
    key = a["pool"], a["sequence"]
    state.disputes[key] = Dispute(*key, a["disputer"], a["trial"], a["deposit"], event.timestamp)


@on("Appeals", "VerdictReached")
def _verdict_reached(state: State, event: Event) -> None:
    dispute = _dispute(state, event)
    dispute.verdict, dispute.appeal_until = event.args["code"], event.args["appealUntil"]
    if Code(dispute.verdict).is_reject and dispute.appeal_until > event.timestamp:
        sub = _submission(state, event)
        _freeze(state.accounts[sub.pool, sub.node], sub, event.timestamp)


@on("Appeals", "Appealed")
def _appealed(state: State, event: Event) -> None:
    a = event.args
    dispute = _dispute(state, event)
    dispute.appellant, dispute.appeal_trial, dispute.appeal_deposit = a["appellant"], a["trial"], a["deposit"]


@on("Appeals", "DisputeResolved")
def _dispute_resolved(state: State, event: Event) -> None:
    a = event.args
    dispute = _dispute(state, event)
    dispute.resolved, dispute.code = True, a["code"]
    dispute.overturned, dispute.reward = a["overturned"], a["reward"]


@on("Appeals", "MemberPenalised")
def _member_penalised(state: State, event: Event) -> None:
    a = event.args
    if a["amount"]:
        code = state.submissions[a["pool"], a["sequence"]].code
        state.slashes.append(_slash(event, "seat", str(a["seat"]), code, a["amount"]))


@on("Canaries", "CanaryOpened")
def _canary_opened(state: State, event: Event) -> None:
    a = event.args
    key = a["pool"], a["sequence"]
    accused = tuple(a["accused"])
    state.canaries[key] = Canary(*key, a["row"], a["reason"], accused, a["deposit"], a["contestUntil"], event.timestamp)


@on("Canaries", "CanaryContested")
def _canary_contested(state: State, event: Event) -> None:
    a = event.args
    canary = state.canaries[a["pool"], a["sequence"]]
    canary.contester, canary.trial, canary.contest_deposit = a["contester"], a["trial"], a["deposit"]


@on("Canaries", "CanaryConcluded")
def _canary_concluded(state: State, event: Event) -> None:
    canary = state.canaries[event.args["pool"], event.args["sequence"]]
    canary.concluded, canary.upheld, canary.code = True, event.args["upheld"], event.args["code"]


@on("Canaries", "SeatSlashed")
def _seat_slashed(state: State, event: Event) -> None:
    a = event.args
    state.canaries[a["pool"], a["sequence"]].slashed[a["seat"]] = a["amount"]
    state.slashes.append(_slash(event, "seat", str(a["seat"]), int(Code.CANARY), a["amount"]))


# ---- Look-ups and small steps


def _account(state: State, event: Event) -> Account:
    return state.accounts[event.args["pool"], event.args["node"]]


def _submission(state: State, event: Event) -> Submission:
    return state.submissions[event.args["pool"], event.args["sequence"]]


def _dispute(state: State, event: Event) -> Dispute:
    return state.disputes[event.args["pool"], event.args["sequence"]]


def _round(state: State, event: Event) -> Round:
    number: int = event.args["round"]
    return state.lanes[event.args["pool"], event.args["lane"]].rounds[number]


def _earn(account: Account, sub: Submission) -> None:
    account.units_accepted += sub.units
    account.units_earned += sub.units
    sub.cumulative = account.units_earned


def _freeze(account: Account, sub: Submission, time: int) -> None:
    """The file keeps its node from submitting and from claiming what vests later, until it is thawed.

    The contract's NodeFrozen and NodeReleased do not name the file, and a slash thaws without them: so we count files.
    """
    if not sub.frozen:
        sub.frozen = True
        account.frozen += 1
        account.frozen_at = account.frozen_at or time


def _thaw(account: Account, sub: Submission) -> None:
    if sub.frozen:
        sub.frozen = False
        account.frozen -= 1
        account.frozen_at = account.frozen_at if account.frozen else 0


def _slash(event: Event, kind: str, who: str, code: int, amount: int, sequence: int | None = None) -> Slash:
    place = event.args["sequence"] if sequence is None else sequence
    return Slash(kind, who, event.args["pool"], place, code, amount, event.block, event.timestamp, event.tx_hash)


def _pay(
    state: State, event: Event, kind: str, to: str, pool: int, amount: int, node: str = "", units: int = 0
) -> None:
    state.payments.append(Payment(kind, to, pool, amount, node, units, event.block, event.timestamp, event.tx_hash))
