"""How each event changes the state: one function per event, registered by contract and name.

Everything here is pure: the same events give the same state. Nothing is undone in place; after a reorganisation the
state is computed again.
"""

from collections.abc import Callable, Iterable
from typing import Any

from chain.indexer.logs import Event
from chain.indexer.records import (
    MAX_MIRROR,
    MOST_NODE_MIRRORS,
    Account,
    Canary,
    ChallengeOutcome,
    Dispute,
    Lane,
    Mirrors,
    Node,
    NodeChallenge,
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

Args = dict[str, Any]
Reducer = Callable[[State, Args, Event], None]
REDUCERS: dict[tuple[str, str], Reducer] = {}
ZERO = "0x" + "00" * 20
STATUSES = ("none", "open", "paused", "closing", "settled", "understaffed")
MAX_URL = 500  # characters of an announced URL; the rest is cut off


def on(contract: str, *names: str) -> Callable[[Reducer], Reducer]:
    """Register the reducer of events of a contract; `a` are the event's arguments."""

    def register(reducer: Reducer) -> Reducer:
        REDUCERS.update({(contract, name): reducer for name in names})
        return reducer

    return register


def sets(contract: str, name: str, table: str, key: str, **values: Any) -> None:
    """Register an event that sets fields of the record of `table` that its arguments `key` name. A value is the name of
    an argument, or what is not text itself."""

    @on(contract, name)
    def set_fields(state: State, a: Args, event: Event) -> None:
        record = getattr(state, table)[a[key] if " " not in key else tuple(a[one] for one in key.split())]
        for field, value in values.items():
            setattr(record, field, a[value] if isinstance(value, str) else value)


def earn(account: Account, sub: Submission) -> None:
    account.units_awarded += sub.units
    account.units_earned += sub.units
    sub.cumulative = account.units_earned


def freeze(account: Account, sub: Submission, time: int) -> None:
    """Keep the file's node from submitting and from claiming what vests later, until the file is thawed.

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


def eject(account: Account, since: int) -> None:
    account.slashed_at = min(account.slashed_at or since, since)
    account.ejected, account.member, account.limit = True, False, 0


def slash(state: State, event: Event, kind: str, who: object, code: int, amount: int, *file: int) -> None:
    """Note a penalty for `file` (pool, sequence)."""
    pool, sequence = file
    penalty = Slash(kind, str(who), pool, sequence, code, amount, event.block, event.timestamp, event.tx_hash)
    state.slashes.append(penalty)


def pay(state: State, event: Event, kind: str, to: str, pool: int, amount: int, node: str = "", units: int = 0) -> None:
    state.paid[kind, to, pool] = state.paid.get((kind, to, pool), 0) + amount
    state.payments.append(Payment(kind, to, pool, amount, node, units, event.block, event.timestamp, event.tx_hash))


# Token


@on("MusterToken", "Transfer")
def _transfer(state: State, a: Args, event: Event) -> None:
    sender, to, amount = a["from"], a["to"], a["value"]
    if sender != ZERO:
        state.balances[sender] = state.balances.get(sender, 0) - amount
    if to != ZERO:
        state.balances[to] = state.balances.get(to, 0) + amount
    state.transfers[sender, to] = state.transfers.get((sender, to), 0) + amount


# Nodes and their stake


@on("Stakes", "NodeRegistered")
def _node_registered(state: State, a: Args, event: Event) -> None:
    state.nodes[a["node"]] = Node(a["node"], a["operator"], a["stake"], block=event.block)


sets("Stakes", "StakeDeposited", "nodes", "node", stake="stake")
sets("Stakes", "StakeWithdrawn", "nodes", "node", stake="stake")
sets("Stakes", "NodeBound", "nodes", "node", pool="pool", release_at=0)
sets("Stakes", "NodeUnbound", "nodes", "node", pool=0, release_at="releaseAt")
sets("Stakes", "NodeFrozen", "nodes", "node", frozen="frozen")
sets("Stakes", "NodeReleased", "nodes", "node", frozen="frozen")


@on("Stakes", "NodeSlashed")
def _node_slashed(state: State, a: Args, event: Event) -> None:
    node = state.nodes[a["node"]]
    node.stake, node.frozen = a["stake"], a["frozen"]
    node.slashed += a["amount"]
    if not node.stake:
        node.pool = 0
    # Which file caused it is in the FileFinalized that Pools emits right after, in the same transaction.
    state.pending_slashes[a["node"]] = (a["amount"], a["fees"])


# Seats


@on("Seats", "SeatOpened", "SeatReopened")
def _seat_opened(state: State, a: Args, event: Event) -> None:
    owner = a["owner"] if "owner" in a else state.seats[a["seat"]].owner
    state.seats[a["seat"]] = Seat(a["seat"], owner, a["voter"], a["bond"], a["activeFrom"])


@on("Seats", "SeatOptedIn")
def _seat_opted_in(state: State, a: Args, event: Event) -> None:
    seat = state.seats[a["seat"]]
    seat.groups = (*seat.groups, a["group"])


@on("Seats", "SeatOptedOut")
def _seat_opted_out(state: State, a: Args, event: Event) -> None:
    seat = state.seats[a["seat"]]
    seat.groups = tuple(group for group in seat.groups if group != a["group"])
    seat.left_groups[a["group"]] = a["epoch"]


sets("Seats", "VoterSet", "seats", "seat", voter="voter")
sets("Seats", "SeatToppedUp", "seats", "seat", bond="bond")
sets("Seats", "SeatLeft", "seats", "seat", left_epoch="epoch", evicted="evicted")
sets("Seats", "SeatUnbonding", "seats", "seat", release_at="releaseAt")
sets("Seats", "SeatClosed", "seats", "seat", closed=True, bond=0)
sets("Seats", "SeatFrozen", "seats", "seat", frozen="frozen")
sets("Seats", "SeatReleased", "seats", "seat", frozen="frozen")


@on("Seats", "SeatPenalised")
def _seat_penalised(state: State, a: Args, event: Event) -> None:
    seat = state.seats[a["seat"]]
    seat.bond = a["bond"]
    seat.penalised += a["amount"]


# Pools: owners


@on("Pools", "PoolCreated")
def _pool_created(state: State, a: Args, event: Event) -> None:
    terms = Terms.of(a["terms"])
    state.pools[a["pool"]] = Pool(a["pool"], a["owner"], a["configHash"], terms, a["unbonding"], event.block)


@on("Pools", "PoolFunded")
def _pool_funded(state: State, a: Args, event: Event) -> None:
    state.pools[a["pool"]].funded += a["amount"]


@on("Pools", "StatusSet")
def _status_set(state: State, a: Args, event: Event) -> None:
    state.pools[a["pool"]].status = STATUSES[a["status"]]


@on("Pools", "LeftoverTaken")
def _leftover_taken(state: State, a: Args, event: Event) -> None:
    state.pools[a["pool"]].leftover += a["amount"]
    pay(state, event, "leftover", a["owner"], a["pool"], a["amount"])


@on("Pools", "StepPublished")
def _step_published(state: State, a: Args, event: Event) -> None:
    published = event.block, event.timestamp, event.tx_hash
    step = Step(a["step"], a["manifestHash"], a["canaryRoot"], a["seedBlock"], *published)
    state.pools[a["pool"]].steps.append(step)


# Pools: members and files


@on("Pools", "NodeJoined")
def _node_joined(state: State, a: Args, event: Event) -> None:
    account = state.accounts.setdefault((a["pool"], a["node"]), Account(a["pool"], a["node"], a["operator"]))
    account.member, account.operator = True, a["operator"]
    account.joined_step, account.limit = a["joinedStep"], a["limit"]


sets("Pools", "LimitSet", "accounts", "pool node", limit="limit")


@on("Pools", "NodeLeft")
def _node_left(state: State, a: Args, event: Event) -> None:
    # The owner may bar a node that never joined.
    key = a["pool"], a["node"]
    operator = state.nodes[key[1]].operator if key[1] in state.nodes else ZERO
    account = state.accounts.setdefault(key, Account(*key, operator))
    account.member, account.limit = False, 0
    account.removed = account.removed or a["removed"]


@on("Pools", "WorkSubmitted")
def _work_submitted(state: State, a: Args, event: Event) -> None:
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
    pool, account = state.pools[sub.pool], state.accounts[sub.pool, sub.node]
    pool.sequences.append(sub.sequence)
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


def _file(state: State, a: Args) -> Submission:
    return state.submissions[(a["file"] >> 32, a["file"] & 0xFFFFFFFF) if "file" in a else (a["pool"], a["sequence"])]


@on("Pools", "ReceiptPresented")
def _receipt_presented(state: State, a: Args, event: Event) -> None:
    sub = _file(state, a)
    lane = state.lane_of(sub)
    lane.attested |= 1 << sub.place
    _fix_seed(lane, state.pools[sub.pool])


def _fix_seed(lane: Lane, pool: Pool) -> None:
    if lane.attested:
        last = lane.last_block + pool.terms.attestBlocks if lane.missing else lane.last_block
        lane.rounds[0].seed_block = last + 1


@on("Pools", "MirrorAnnounced")
def _mirror_announced(state: State, a: Args, event: Event) -> None:
    sub: Submission | None = state.submissions.get((a["pool"], a["sequence"]))
    sender: str = a["sender"]
    uri: str = a["uri"]
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
def _file_settled(state: State, a: Args, event: Event) -> None:
    sub = _file(state, a)
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
def _file_disputed(state: State, a: Args, event: Event) -> None:
    sub = _file(state, a)
    sub.disputed = True
    if sub.is_paid:
        state.accounts[sub.pool, sub.node].units_spent += sub.units


@on("Pools", "FileResolved")
def _file_resolved(state: State, a: Args, event: Event) -> None:
    sub = _file(state, a)
    account = state.accounts[sub.pool, sub.node]
    was, now = sub.is_paid, Code(a["code"]).is_paid
    sub.code, sub.final_time = a["code"], a["time"]
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
def _file_finalized(state: State, a: Args, event: Event) -> None:
    sub = _file(state, a)
    pool, account = state.pools[sub.pool], state.accounts[sub.pool, sub.node]
    sub.code, sub.finalized, sub.slashed = a["code"], True, a["slashed"]
    pool.refused.discard(sub.sequence)
    amount, fees = state.pending_slashes.pop(sub.node, (0, 0))
    pool.from_stakes += fees
    account.slashed += amount
    if Code(sub.code).is_reject:
        if not account.ejected:
            account.eject_code, account.eject_sequence = sub.code, sub.sequence
        eject(account, sub.decided_time)
    thaw(account, sub)
    if amount:
        slash(state, event, "node", sub.node, sub.code, amount, sub.pool, sub.sequence)


@on("Pools", "FileForfeited")
def _file_forfeited(state: State, a: Args, event: Event) -> None:
    sub = _file(state, a)
    pool, account = state.pools[sub.pool], state.accounts[sub.pool, sub.node]
    sub.forfeited, sub.finalized, sub.cumulative = True, True, 0
    pool.refused.discard(sub.sequence)
    pool.forfeited += a["amount"]
    account.units_earned -= sub.units
    if sub.is_paid:
        account.units_awarded -= sub.units
    else:
        account.units_spent -= sub.units


@on("Pools", "Claimed")
def _claimed(state: State, a: Args, event: Event) -> None:
    account = state.accounts[a["pool"], a["node"]]
    account.units_spent += a["units"]
    account.paid += a["amount"]
    state.pools[a["pool"]].claimed += a["amount"]
    pay(state, event, "claim", account.operator, a["pool"], a["amount"], a["node"], a["units"])


@on("Pools", "FeePaid")
def _fee_paid(state: State, a: Args, event: Event) -> None:
    pool = state.pools[a["pool"]]
    pool.fees_paid += a["paid"]
    pool.fees_burnt += a["burnt"]
    if a["paid"]:
        pay(state, event, "fee", a["to"], a["pool"], a["paid"])


# Court


@on("Court", "ServiceSet")
def _service_set(state: State, a: Args, event: Event) -> None:
    pool = state.pools[a["pool"]]
    pool.previous_service, pool.previous_until, pool.service = pool.service, a["previousUntil"], a["service"]


@on("Court", "ServiceAnnounced")
def _service_announced(state: State, a: Args, event: Event) -> None:
    state.pools[a["pool"]].service_url = a["url"][:MAX_URL]


@on("Court", "LaneAttested")
def _lane_attested(state: State, a: Args, event: Event) -> None:
    lane = state.lanes[a["pool"], a["lane"]]
    lane.attested, lane.rounds[0].seed_block = a["places"], a["seedBlock"]


@on("Court", "CommitteeDrawn")
def _committee_drawn(state: State, a: Args, event: Event) -> None:
    drawn: int = a["drawn"]
    terms = state.pools[a["which"] >> 64].terms
    judging = _round(state, a["which"])
    judging.seed = (drawn & 0xFFFFFFFFFFFFFFFF).to_bytes(32, "big")
    judging.seats = tuple(seat for shift in range(64, 144, 16) if (seat := drawn >> shift & 0xFFFF))
    _begin(judging, event, terms.commitWindow, terms.revealWindow)


def _begin(panel: Panel, event: Event, commit_window: int, reveal_window: int) -> None:
    panel.seed_block, panel.drawn_time = event.args["seedBlock"], event.timestamp
    panel.commit_until = event.timestamp + commit_window
    panel.reveal_until = panel.commit_until + reveal_window


def _round(state: State, which: int) -> Round:
    return state.lanes[which >> 64, which >> 32 & 0xFFFFFFFF].rounds[which >> 8 & 0xFF]


@on("Court", "VoteCommitted")
def _vote_committed(state: State, a: Args, event: Event) -> None:
    _round(state, a["ballot"]).commits[a["ballot"] & 0xFF] = a["commitment"]


@on("Court", "VoteRevealed")
def _vote_revealed(state: State, a: Args, event: Event) -> None:
    judging, member = _round(state, a["ballot"]), a["ballot"] & 0xFF
    judging.commits.setdefault(member, b"")  # who voted in one call
    judging.reveals[member] = (a["codes"], a["verdictHash"])


@on("Court", "LaneSettled")
def _lane_settled(state: State, a: Args, event: Event) -> None:
    done = _round(state, a["which"])
    done.settled, done.settled_time, done.codes = True, event.timestamp, a["codes"]


@on("Court", "LaneRedrawn")
def _lane_redrawn(state: State, a: Args, event: Event) -> None:
    lane = state.lanes[a["pool"], a["lane"]]
    lane.rounds.append(Round(len(lane.rounds), seed_block=a["seedBlock"]))


@on("Court", "MemberAbsent")
def _member_absent(state: State, a: Args, event: Event) -> None:
    slash(state, event, "seat", a["seat"], 0, a["penalty"], a["pool"], a["lane"] << 4)


@on("Court", "OutcomeSet")
def _outcome_set(state: State, a: Args, event: Event) -> None:
    decided, shift = state.lanes[a["pool"], a["lane"]].rounds[a["round"]], 4 * a["place"]
    decided.codes = decided.codes & ~(15 << shift) | a["code"] << shift


@on("Court", "MemberClosed")
def _member_closed(state: State, a: Args, event: Event) -> None:
    closed = state.lanes[a["pool"], a["lane"]].rounds[a["round"]]
    closed.closed.add(closed.seats.index(a["seat"]))
    state.seats[a["seat"]].earned += a["paid"]
    if a["penalty"]:
        slash(state, event, "seat", a["seat"], 0, a["penalty"], a["pool"], a["lane"] << 4)


# Juries, disputes, canaries


@on("Juries", "JurySummoned")
def _jury_summoned(state: State, a: Args, event: Event) -> None:
    state.trials[a["trial"]] = Trial(a["trial"], a["pool"], a["sequence"], a["size"], seed_block=a["seedBlock"])


@on("Juries", "JuryDrawn")
def _jury_drawn(state: State, a: Args, event: Event) -> None:
    trial = state.trials[a["trial"]]
    terms = state.pools[trial.pool].terms
    trial.seed, trial.seats = a["seed"], tuple(a["seats"])
    challenge = state.challenge_of(trial.trial)
    _begin(
        trial, event, jury_commit_window(terms, len(challenge.sequences) if challenge else 1), terms.juryRevealWindow
    )


@on("Juries", "JurorCommitted")
def _juror_committed(state: State, a: Args, event: Event) -> None:
    state.trials[a["trial"]].commits[a["juror"]] = a["commitment"]


@on("Juries", "JurorRevealed")
def _juror_revealed(state: State, a: Args, event: Event) -> None:
    state.trials[a["trial"]].reveals[a["juror"]] = (a["code"], a["verdictHash"])


sets("Juries", "JuryConcluded", "trials", "trial", settled=True, code="code")


@on("Juries", "JurorClosed")
def _juror_closed(state: State, a: Args, event: Event) -> None:
    trial, seat = state.trials[a["trial"]], state.seats[a["seat"]]
    trial.closed.add(trial.seats.index(a["seat"]))
    seat.earned += a["paid"]
    if a["paid"]:
        pay(state, event, "jury", seat.owner, trial.pool, a["paid"])
    if a["penalty"]:
        slash(state, event, "seat", a["seat"], 0, a["penalty"], trial.pool, trial.sequence)


@on("Appeals", "Disputed")
def _disputed(state: State, a: Args, event: Event) -> None:
    key = a["pool"], a["sequence"]
    state.disputes[key] = Dispute(*key, a["disputer"], a["trial"], a["deposit"], event.timestamp)


@on("Appeals", "VerdictReached")
def _verdict_reached(state: State, a: Args, event: Event) -> None:
    dispute = state.disputes[a["pool"], a["sequence"]]
    dispute.verdict, dispute.appeal_until = a["code"], a["appealUntil"]
    if Code(dispute.verdict).is_reject and dispute.appeal_until > event.timestamp:
        sub = _file(state, a)
        freeze(state.accounts[sub.pool, sub.node], sub, event.timestamp)


DISPUTED_FILE = "pool sequence"
sets("Appeals", "Appealed", "disputes", DISPUTED_FILE, appellant="appellant")
sets(
    "Appeals", "DisputeResolved", "disputes", DISPUTED_FILE,
    resolved=True, code="code", overturned="overturned", reward="reward",
)  # fmt: skip


@on("Appeals", "MemberPenalised")
def _member_penalised(state: State, a: Args, event: Event) -> None:
    if a["amount"]:
        slash(state, event, "seat", a["seat"], _file(state, a).code, a["amount"], a["pool"], a["sequence"])


@on("Canaries", "CanaryOpened")
def _canary_opened(state: State, a: Args, event: Event) -> None:
    key = a["pool"], a["sequence"]
    accused = tuple(a["accused"])
    state.canaries[key] = Canary(*key, a["row"], a["reason"], accused, a["deposit"], event.timestamp)


sets("Canaries", "CanaryContested", "canaries", DISPUTED_FILE, contester="contester", trial="trial")
sets("Canaries", "CanaryConcluded", "canaries", DISPUTED_FILE, concluded=True, upheld="upheld", code="code")


@on("Canaries", "SeatSlashed")
def _seat_slashed(state: State, a: Args, event: Event) -> None:
    state.canaries[a["pool"], a["sequence"]].slashed[a["seat"]] = a["amount"]
    slash(state, event, "seat", a["seat"], int(Code.CANARY), a["amount"], a["pool"], a["sequence"])


# Node challenges


@on("NodeChallenges", "ChallengeOpened")
def _challenge_opened(state: State, a: Args, event: Event) -> None:
    number = state.trial_challenges[a["trial"]] = a["challenge"]
    state.challenges[number] = NodeChallenge(
        number, a["pool"], a["node"], a["accuser"], tuple(a["sequences"]), a["evidence"],
        bond=a["bond"], trials=[a["trial"]], block=event.block, time=event.timestamp,
    )  # fmt: skip


@on("Juries", "JuryReplaced")
def _jury_replaced(state: State, a: Args, event: Event) -> None:
    challenge = state.challenge_of(a["trial"])
    if challenge is not None:
        challenge.trials.append(a["next"])
        state.trial_challenges[a["next"]] = challenge.challenge


@on("Pools", "NodeExpelled")
def _node_expelled(state: State, a: Args, event: Event) -> None:
    eject(state.accounts[a["pool"], a["node"]], event.timestamp)


@on("NodeChallenges", "ChallengeConcluded")
def _challenge_concluded(state: State, a: Args, event: Event) -> None:
    challenge, account = state.challenges[a["challenge"]], state.accounts[a["pool"], a["node"]]
    challenge.outcome, challenge.code, challenge.slashed, challenge.back = (
        ChallengeOutcome(a["outcome"]),
        a["code"],
        a["slashed"],
        a["back"],
    )
    if challenge.outcome is not ChallengeOutcome.UPHELD:
        return
    if not account.eject_code:
        account.eject_code, account.eject_sequence, account.eject_challenge = (
            challenge.code,
            challenge.sequences[-1],
            challenge.challenge,
        )
    # The order to Stakes in the same transaction; nothing was taken of a stake that stands for another pool by now.
    state.pending_slashes.pop(challenge.node, None)
    account.slashed += challenge.slashed
    if challenge.slashed:
        slash(
            state,
            event,
            "node",
            challenge.node,
            challenge.code,
            challenge.slashed,
            challenge.pool,
            challenge.sequences[-1],
        )


# Governance


_ROLES = {keccak(f"{name.upper()}_ROLE".encode()): name for name in ("proposer", "canceller", "executor", "guardian")}
_ROLES[bytes(32)] = "admin"


@on("Params", "ValuesSet", "ValuesScheduled")
def _values_set(state: State, a: Args, event: Event) -> None:
    state.params[a.get("time", 0)] = dict(a["values"])


@on("Params", "PausedUntil")
def _paused_until(state: State, a: Args, event: Event) -> None:
    state.paused_until = a["time"]


@on("Timelock", "CallScheduled")
def _call_scheduled(state: State, a: Args, event: Event) -> None:
    key = "0x" + a["id"].hex()
    if a["index"] == 0:
        state.proposals[key] = Proposal(a["id"], [], a["predecessor"], event.timestamp + a["delay"], event.block)
    state.proposals[key].calls.append(ProposedCall(a["target"], a["value"], a["data"]))


@on("Timelock", "CallSalt", "CallExecuted", "Cancelled")
def _proposal_moved(state: State, a: Args, event: Event) -> None:
    proposal = state.proposals.get("0x" + a["id"].hex())
    if proposal is not None and event.name == "CallSalt":
        proposal.salt = a["salt"]
    elif proposal is not None:
        proposal.status = "done" if event.name == "CallExecuted" else "cancelled"


@on("Timelock", "RoleGranted", "RoleRevoked")
def _role_changed(state: State, a: Args, event: Event) -> None:
    role = _ROLES.get(a["role"], "0x" + a["role"].hex())
    others = state.roles.get(role, ())
    if event.name == "RoleGranted":
        state.roles[role] = (*others, a["account"])
    else:
        state.roles[role] = tuple(account for account in others if account != a["account"])


# Applying events


def apply(state: State, event: Event) -> None:
    """Change the state, in place, as the event says. Events without meaning for it are ignored."""
    reducer = REDUCERS.get((event.contract, event.name))
    if reducer is not None:
        reducer(state, event.args, event)
    state.head = max(state.head, event.block)
    state.time = max(state.time, event.timestamp)


def replay(events: Iterable[Event]) -> State:
    """Return the state after `events`, in chain order."""
    state = State()
    for event in events:
        apply(state, event)
    return state
