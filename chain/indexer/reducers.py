"""How each event changes the state: one class per contract, one method per event, both named as in the ABIs.

Everything here is pure: the same events give the same state. Nothing is undone in place; after a reorganisation the
state is computed again.
"""

from collections.abc import Callable
from typing import Any

from chain.indexer import records
from chain.indexer.logs import Event
from chain.indexer.state import State
from protocol.encoding import keccak
from protocol.verdict import Code

Args = dict[str, Any]
ZERO = "0x" + "00" * 20
STATUSES = ("none", "open", "paused", "closing", "settled", "understaffed")
MAX_URL = 500  # characters of an announced URL; the rest is cut off


class Reducer:
    """Changes `state`, in place, by one event of a contract. `a` are the event's arguments."""

    def __init__(self, state: State, event: Event) -> None:
        self.state, self.event = state, event
        self.mined = event.block, event.timestamp, event.tx_hash

    def file(self, a: Args) -> records.Submission:
        key = (a["file"] >> 32, a["file"] & 0xFFFFFFFF) if "file" in a else (a["pool"], a["sequence"])
        return self.state.submissions[key]

    def slash(self, kind: str, who: object, code: int, amount: int, pool: int, sequence: int) -> None:
        self.state.slashes.append(records.Slash(kind, str(who), pool, sequence, code, amount, *self.mined))

    def pay(self, kind: str, to: str, pool: int, amount: int, node: str = "", units: int = 0) -> None:
        paid = self.state.paid
        paid[kind, to, pool] = paid.get((kind, to, pool), 0) + amount
        self.state.payments.append(records.Payment(kind, to, pool, amount, node, units, *self.mined))

    def begin(self, panel: records.Panel, commit_window: int, reveal_window: int) -> None:
        panel.seed_block, panel.drawn_time = self.event.args["seedBlock"], self.event.timestamp
        panel.commit_until = self.event.timestamp + commit_window
        panel.reveal_until = panel.commit_until + reveal_window


def sets(table: str, key: str, **values: Any) -> Callable[[Reducer, Args], None]:
    """Return a method that sets fields of the record of `table` that the arguments `key` name. A text among `values` is
    the name of an argument."""

    def set_fields(self: Reducer, a: Args) -> None:
        record = getattr(self.state, table)[a[key] if " " not in key else tuple(a[part] for part in key.split())]
        for field, value in values.items():
            setattr(record, field, a[value] if isinstance(value, str) else value)

    return set_fields


def settled_code(word: int) -> int:
    """Return the outcome in a settled file's word."""
    return word >> 240 & 0xFF


def earn(account: records.Account, sub: records.Submission) -> None:
    account.units_awarded += sub.units
    account.units_earned += sub.units
    sub.cumulative = account.units_earned


def freeze(account: records.Account, sub: records.Submission, time: int) -> None:
    """Keep the file's node from submitting and from claiming what vests later, until the file is thawed.

    The contract's NodeFrozen does not name every file, and nothing is emitted when one is thawed: so we count files.
    """
    if not sub.frozen:
        sub.frozen = True
        account.frozen += 1
        account.frozen_at = account.frozen_at or time


def thaw(account: records.Account, sub: records.Submission) -> None:
    if sub.frozen:
        sub.frozen = False
        account.frozen -= 1
        account.frozen_at = account.frozen_at if account.frozen else 0


def eject(account: records.Account, since: int) -> None:
    account.slashed_at = min(account.slashed_at or since, since)
    account.ejected, account.member, account.limit = True, False, 0


class MusterToken(Reducer):
    def Transfer(self, a: Args) -> None:
        state, sender, to, amount = self.state, a["from"], a["to"], a["value"]
        if sender != ZERO:
            state.balances[sender] = state.balances.get(sender, 0) - amount
        if to != ZERO:
            state.balances[to] = state.balances.get(to, 0) + amount
        state.transfers[sender, to] = state.transfers.get((sender, to), 0) + amount


class Stakes(Reducer):
    StakeDeposited = StakeWithdrawn = sets("nodes", "node", stake="stake")
    NodeBound = sets("nodes", "node", pool="pool")
    NodeFrozen = NodeReleased = sets("nodes", "node", frozen="frozen")

    def NodeUnbound(self, a: Args) -> None:
        node = self.state.nodes[a["node"]]
        node.pool = 0
        if node.stake:  # without any nothing is locked
            node.release_at = a["releaseAt"]

    def NodeRegistered(self, a: Args) -> None:
        self.state.nodes[a["node"]] = records.Node(a["node"], a["operator"], a["stake"], block=self.event.block)

    def StakeLent(self, a: Args) -> None:
        node = self.state.nodes[a["node"]]
        node.sponsor, node.loan = a["sponsor"], a["amount"]

    def LoanRepaid(self, a: Args) -> None:
        self.state.nodes[a["node"]].loan -= a["amount"]

    def NodeSlashed(self, a: Args) -> None:
        node = self.state.nodes[a["node"]]
        node.stake, node.frozen = a["stake"], a["frozen"]
        node.slashed += a["amount"]
        node.loan = min(node.loan, node.stake)
        # Which file caused it is in the FileFinalized that Pools emits right after, in the same transaction.
        self.state.pending_slashes[a["node"]] = (a["amount"], a["fees"])


class Seats(Reducer):
    VoterSet = sets("seats", "seat", voter="voter")
    SeatToppedUp = sets("seats", "seat", bond="bond")
    SeatLeft = sets("seats", "seat", left_epoch="epoch", evicted="evicted")
    SeatUnbonding = sets("seats", "seat", release_at="releaseAt")
    SeatClosed = sets("seats", "seat", closed=True, bond=0)
    SeatFrozen = SeatReleased = sets("seats", "seat", frozen="frozen")

    def SeatOpened(self, a: Args) -> None:
        seat = records.Seat(a["seat"], a["owner"], a["voter"], a["bond"], a["activeFrom"])
        if old := self.state.seats.get(seat.seat):  # opened again: a late lane may hold it still
            seat.frozen, seat.penalised, seat.earned, seat.fees = old.frozen, old.penalised, old.earned, old.fees
        self.state.seats[seat.seat] = seat

    def SeatOptedIn(self, a: Args) -> None:
        seat = self.state.seats[a["seat"]]
        seat.groups = (*seat.groups, a["group"])

    def SeatOptedOut(self, a: Args) -> None:
        seat = self.state.seats[a["seat"]]
        seat.groups = tuple(group for group in seat.groups if group != a["group"])
        seat.left_groups[a["group"]] = a["epoch"]

    def SeatPenalised(self, a: Args) -> None:
        seat = self.state.seats[a["seat"]]
        seat.bond = a["bond"]
        seat.penalised += a["amount"]


class Pools(Reducer):
    LimitSet = sets("accounts", "pool node", limit="limit")

    def PoolCreated(self, a: Args) -> None:
        given = a["pool"], a["owner"], a["configHash"], records.Terms.of(a["terms"]), a["unbonding"]
        self.state.pools[a["pool"]] = records.Pool(*given, self.event.block)

    def PoolFunded(self, a: Args) -> None:
        self.state.pools[a["pool"]].funded += a["amount"]

    def StatusSet(self, a: Args) -> None:
        self.state.pools[a["pool"]].status = STATUSES[a["status"]]

    def LeftoverTaken(self, a: Args) -> None:
        self.state.pools[a["pool"]].leftover += a["amount"]
        self.pay("leftover", a["owner"], a["pool"], a["amount"])

    def StepPublished(self, a: Args) -> None:
        step = records.Step(a["step"], a["manifestHash"], a["canaryRoot"], a["seedBlock"], *self.mined)
        self.state.pools[a["pool"]].steps.append(step)

    # Members

    def NodeJoined(self, a: Args) -> None:
        key = a["pool"], a["node"]
        account = self.state.accounts.setdefault(key, records.Account(*key, a["operator"]))
        account.member, account.operator = True, a["operator"]
        account.joined_step, account.limit = a["joinedStep"], a["limit"]

    def NodeLeft(self, a: Args) -> None:
        # The owner may bar a node that never joined.
        key = a["pool"], a["node"]
        operator = self.state.nodes[key[1]].operator if key[1] in self.state.nodes else ZERO
        account = self.state.accounts.setdefault(key, records.Account(*key, operator))
        account.member, account.limit = False, 0
        account.removed = account.removed or a["removed"]

    def NodeExpelled(self, a: Args) -> None:
        eject(self.state.accounts[a["pool"], a["node"]], self.event.timestamp)

    # Files

    def WorkSubmitted(self, a: Args) -> None:
        state, event, placed = self.state, self.event, a["placed"]
        key = placed >> 136, placed >> 104 & 0xFFFFFFFF
        sub = records.Submission(
            *key,
            a["node"],
            step=placed >> 72 & 0xFFFFFFFF,
            counter=placed >> 48 & 0xFFFFFF,
            units=placed >> 16 & 0xFFFFFFFF,
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
        # The seed block is in the LaneSubmitted that follows its last file, in the same transaction.
        lane = state.lanes.get((sub.pool, sub.lane))
        if lane is None:
            lane = state.lanes[sub.pool, sub.lane] = records.Lane(sub.pool, sub.lane, [records.Round(0, seed_block=0)])
        lane.sequences.append(sub.sequence)

    def FilesSettled(self, a: Args) -> None:
        pool, first, words = a["file"] >> 32, a["file"] & 0xFFFFFFFF, a["words"]
        lane_words = tuple(words) if all(words) else ()
        for offset, word in enumerate(words):
            if word:
                sub = self.state.submissions[pool, first + offset]
                sub.lane_words = lane_words
                self.settle(sub, settled_code(word), word >> 208 & 0xFFFFFFFF)

    def FilesUnpacked(self, a: Args) -> None:
        pool, first = a["file"] >> 32, a["file"] & 0xFFFFFFFF
        for sequence in self.state.lanes[pool, first >> 4].sequences:
            if a["places"] >> (sequence & 15) & 1:
                self.state.submissions[pool, sequence].lane_words = ()

    def settle(self, sub: records.Submission, code: int, final_time: int) -> None:
        event = self.event
        account = self.state.accounts[sub.pool, sub.node]
        sub.code = sub.votes_code = code
        sub.decided_block, sub.decided_time, sub.final_time = event.block, event.timestamp, final_time
        account.units_pending -= sub.units
        if sub.is_paid:
            earn(account, sub)
        elif sub.status == records.Status.REJECTED:
            freeze(account, sub, event.timestamp)
        sub.committees = sum(judging.drawn for judging in self.state.lane_of(sub).rounds)
        if sub.status in (records.Status.REJECTED, records.Status.MALFORMED):
            self.state.pools[sub.pool].refused.add(sub.sequence)

    def FileResolved(self, a: Args) -> None:
        sub = self.file(a)
        account = self.state.accounts[sub.pool, sub.node]
        was, now = sub.is_paid, Code(a["code"]).is_paid
        sub.code, sub.final_time = a["code"], a["time"]
        sub.disputed, sub.finalized = False, True
        self.state.pools[sub.pool].refused.discard(sub.sequence)
        if now:
            thaw(account, sub)
        if was and now:
            account.units_spent -= sub.units
        elif now:
            earn(account, sub)
        elif was:
            account.units_awarded -= sub.units
            # It was to be paid until this block; a slash bars what vests from now on.
            sub.decided_block, sub.decided_time = self.event.block, self.event.timestamp

    def leave_lane(self, sub: records.Submission) -> None:
        """A file that has no word of its own is final: its lane has zero for it."""
        words = sub.lane_words
        left = *words[: sub.place], 0, *words[sub.place + 1 :]
        for sequence in self.state.lane_of(sub).sequences if words else ():
            file = self.state.submissions[sub.pool, sequence]
            file.lane_words = left if file.lane_words and file is not sub else ()

    def FileFinalized(self, a: Args) -> None:
        state, sub = self.state, self.file(a)
        pool, account = state.pools[sub.pool], state.accounts[sub.pool, sub.node]
        sub.code, sub.finalized, sub.slashed = a["code"], True, a["slashed"]
        self.leave_lane(sub)
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
            self.slash("node", sub.node, sub.code, amount, sub.pool, sub.sequence)

    def FileForfeited(self, a: Args) -> None:
        sub = self.file(a)
        pool, account = self.state.pools[sub.pool], self.state.accounts[sub.pool, sub.node]
        sub.forfeited, sub.finalized, sub.cumulative = True, True, 0
        pool.refused.discard(sub.sequence)
        pool.forfeited += a["amount"]
        account.units_earned -= sub.units
        if sub.is_paid:
            account.units_awarded -= sub.units
        else:
            account.units_spent -= sub.units

    # Pay

    def Claimed(self, a: Args) -> None:
        account = self.state.accounts[a["pool"], a["node"]]
        account.units_spent += a["units"]
        account.paid += a["amount"]
        self.state.pools[a["pool"]].claimed += a["amount"]
        self.pay("claim", account.operator, a["pool"], a["amount"], a["node"], a["units"])

    def FeesWithdrawn(self, a: Args) -> None:
        self.state.seats[a["seat"]].fees -= a["amount"]

    def JuryPaid(self, a: Args) -> None:
        self.state.pools[a["pool"]].juries_paid += a["amount"]
        key = "juries", a["to"], a["pool"]
        self.state.paid[key] = self.state.paid.get(key, 0) + a["amount"]


class Court(Reducer):
    def ServiceSet(self, a: Args) -> None:
        pool = self.state.pools[a["pool"]]
        pool.previous_service, pool.previous_until, pool.service = pool.service, a["previousUntil"], a["service"]

    def ServiceAnnounced(self, a: Args) -> None:
        self.state.pools[a["pool"]].service_url = a["url"][:MAX_URL]

    def MirrorAnnounced(self, a: Args) -> None:
        state, key, sender = self.state, (a["pool"], a["sequence"]), a["sender"]
        uri: str = a["uri"]
        sub: records.Submission | None = state.submissions.get(key)
        # Anybody can emit this, with any text; only its own node and the seats that had it speak for a file.
        if sub is None or len(uri) > records.MAX_MIRROR:
            return
        by_node = sub.node == sender
        members = [(judging, seat) for judging in state.lane_of(sub).rounds for seat in judging.seats]
        had = [seat for judging, seat in members if judging.had(seat, sub.place)]
        seats = [seat for seat in had if state.seats[seat].voter == sender]
        if by_node or seats:
            mirrors = state.mirrors.setdefault(key, records.Mirrors())
            mirrors.seats.update(dict.fromkeys(seats, uri))
            if by_node and len(mirrors.node) < records.MOST_NODE_MIRRORS:
                mirrors.node.append(uri)

    def LaneSubmitted(self, a: Args) -> None:
        self.state.lanes[a["pool"], a["lane"]].round.seed_block = a["seedBlock"]

    def round(self, which: int) -> records.Round:
        return self.state.lanes[which >> 64, which >> 32 & 0xFFFFFFFF].rounds[which >> 8 & 0xFF]

    def CommitteeDrawn(self, a: Args) -> None:
        drawn: int = a["drawn"]
        terms, judging = self.state.pools[a["which"] >> 64].terms, self.round(a["which"])
        judging.seed = (drawn & 0xFFFFFFFFFFFFFFFF).to_bytes(32, "big")
        judging.seats = tuple(seat for shift in range(64, 144, 16) if (seat := drawn >> shift & 0xFFFF))
        self.begin(judging, terms.commitWindow, terms.revealWindow)

    def VoteCommitted(self, a: Args) -> None:
        self.round(a["ballot"]).commits[a["ballot"] & 0xFF] = a["commitment"]

    def VoteRevealed(self, a: Args) -> None:
        judging, member = self.round(a["ballot"]), a["ballot"] & 0xFF
        judging.commits.setdefault(member, b"")  # who voted in one call
        judging.reveals[member] = (a["codes"], a["verdictHash"])

    def LaneSettled(self, a: Args) -> None:
        done = self.round(a["which"])
        done.settled, done.settled_time, done.codes = True, self.event.timestamp, a["codes"]

    def LaneRedrawn(self, a: Args) -> None:
        rounds = self.state.lanes[a["pool"], a["lane"]].rounds
        rounds.append(records.Round(len(rounds), seed_block=a["seedBlock"]))

    def OutcomeSet(self, a: Args) -> None:
        decided, shift = self.state.lanes[a["pool"], a["lane"]].rounds[a["round"]], 4 * a["place"]
        decided.codes = decided.codes & ~(15 << shift) | a["code"] << shift
        if a["code"] == Code.DISPUTED:
            sub = self.state.submissions[a["pool"], a["lane"] << 4 | a["place"]]
            sub.disputed = True
            if sub.is_paid:
                self.state.accounts[sub.pool, sub.node].units_spent += sub.units

    def MemberAbsent(self, a: Args) -> None:
        ballot = a["ballot"]
        self.slash("seat", ballot >> 16 & 0xFFFF, 0, a["penalty"], ballot >> 64, (ballot >> 32 & 0xFFFFFFFF) << 4)

    def MemberClosed(self, a: Args) -> None:
        ballot = a["ballot"]
        self.round(ballot).closed.add(ballot & 0xFF)
        seat, pool = self.state.seats[ballot >> 16 & 0xFFFF], self.state.pools[ballot >> 64]
        seat.earned += a["paid"]
        seat.fees += a["paid"]
        pool.fees_paid += a["paid"]
        pool.fees_burnt += a["burnt"]
        if a["paid"]:
            self.pay("fee", seat.owner, pool.pool, a["paid"])
        if a["penalty"]:
            self.MemberAbsent(a)


class Juries(Reducer):
    JuryConcluded = sets("trials", "trial", settled=True, code="code")

    def JurySummoned(self, a: Args) -> None:
        given = a["trial"], a["pool"], a["sequence"], a["size"]
        self.state.trials[a["trial"]] = records.Trial(*given, seed_block=a["seedBlock"])

    def JuryDrawn(self, a: Args) -> None:
        trial = self.state.trials[a["trial"]]
        trial.seed, trial.seats = a["seed"], tuple(a["seats"])
        terms, challenge = self.state.pools[trial.pool].terms, self.state.challenge_of(trial.trial)
        commit_window = records.jury_commit_window(terms, len(challenge.sequences) if challenge else 1)
        self.begin(trial, commit_window, terms.juryRevealWindow)

    def JuryReplaced(self, a: Args) -> None:
        self.state.trials[a["trial"]].next = a["next"]
        challenge = self.state.challenge_of(a["trial"])
        if challenge is not None:
            challenge.trials.append(a["next"])
            self.state.trial_challenges[a["next"]] = challenge.challenge

    def Appealed(self, a: Args) -> None:
        self.state.trials[a["trial"]].appellant = a["appellant"]
        self.JuryReplaced(a)

    def VerdictReached(self, a: Args) -> None:
        trial, now = self.state.trials[a["trial"]], self.event.timestamp
        trial.appeal_until = a["appealUntil"]
        dispute = self.state.disputes.get((trial.pool, trial.sequence))
        disputed = dispute is not None and dispute.trial == trial.trial
        if disputed and Code(a["code"]).is_reject and trial.appeal_until > now:
            sub = self.state.submissions[trial.pool, trial.sequence]
            freeze(self.state.accounts[sub.pool, sub.node], sub, now)

    def JurorOverturned(self, a: Args) -> None:
        trial = self.state.trials[a["trial"]]
        if a["amount"]:
            self.slash("seat", a["seat"], 0, a["amount"], trial.pool, trial.sequence)

    def JurorCommitted(self, a: Args) -> None:
        self.state.trials[a["trial"]].commits[a["juror"]] = a["commitment"]

    def JurorRevealed(self, a: Args) -> None:
        self.state.trials[a["trial"]].reveals[a["juror"]] = (a["code"], a["verdictHash"])

    def JurorClosed(self, a: Args) -> None:
        trial, seat = self.state.trials[a["trial"]], self.state.seats[a["seat"]]
        trial.closed.add(trial.seats.index(a["seat"]))
        seat.earned += a["paid"]
        if a["paid"]:
            self.pay("jury", seat.owner, trial.pool, a["paid"])
        if a["penalty"]:
            self.slash("seat", a["seat"], 0, a["penalty"], trial.pool, trial.sequence)


class Appeals(Reducer):
    DisputeResolved = sets(
        "disputes", "pool sequence", resolved=True, code="code", overturned="overturned", reward="reward"
    )

    def Disputed(self, a: Args) -> None:
        key = a["pool"], a["sequence"]
        self.state.disputes[key] = records.Dispute(*key, a["disputer"], a["trial"], a["deposit"], self.event.timestamp)

    def MemberPenalised(self, a: Args) -> None:
        if a["amount"]:
            self.slash("seat", a["seat"], self.file(a).code, a["amount"], a["pool"], a["sequence"])


class Canaries(Reducer):
    CanaryConcluded = sets("canaries", "pool sequence", concluded=True, upheld="upheld", code="code")

    def CanaryOpened(self, a: Args) -> None:
        key, accused = (a["pool"], a["sequence"]), tuple(a["accused"])
        canary = records.Canary(*key, a["row"], a["reason"], accused, a["deposit"], self.event.timestamp, a["trial"])
        self.state.canaries[key] = canary

    def SeatSlashed(self, a: Args) -> None:
        self.state.canaries[a["pool"], a["sequence"]].slashed[a["seat"]] = a["amount"]
        self.slash("seat", a["seat"], int(Code.CANARY), a["amount"], a["pool"], a["sequence"])


class NodeChallenges(Reducer):
    def ChallengeOpened(self, a: Args) -> None:
        given = a["challenge"], a["pool"], a["node"], a["accuser"], tuple(a["sequences"]), a["evidence"], a["bond"]
        opened = records.NodeChallenge(*given, trials=[a["trial"]], block=self.event.block, time=self.event.timestamp)
        self.state.challenges[a["challenge"]] = opened
        self.state.trial_challenges[a["trial"]] = a["challenge"]

    def ChallengeConcluded(self, a: Args) -> None:
        challenge, account = self.state.challenges[a["challenge"]], self.state.accounts[a["pool"], a["node"]]
        challenge.outcome, challenge.code = records.outcome_for(Code(a["code"])), a["code"]
        challenge.slashed, challenge.back = a["slashed"], a["back"]
        if not challenge.outcome.ends_membership:
            return
        last = challenge.sequences[-1]
        if not account.eject_code:
            account.eject_code, account.eject_sequence = challenge.code, last
            account.eject_challenge = challenge.challenge
        # The order to Stakes in the same transaction; nothing was taken of a stake that stands for another pool by now.
        self.state.pending_slashes.pop(challenge.node, None)
        account.slashed += challenge.slashed
        if challenge.slashed:
            self.slash("node", challenge.node, challenge.code, challenge.slashed, challenge.pool, last)


class Params(Reducer):
    def ValuesSet(self, a: Args) -> None:
        self.state.params = dict(a["values"])

    def PausedUntil(self, a: Args) -> None:
        self.state.paused_until = a["time"]


_ROLES = {keccak(f"{name.upper()}_ROLE".encode()): name for name in ("proposer", "canceller", "executor", "guardian")}
_ROLES[bytes(32)] = "admin"


class Timelock(Reducer):
    def CallScheduled(self, a: Args) -> None:
        key, event = "0x" + a["id"].hex(), self.event
        if a["index"] == 0:
            ready_at = event.timestamp + a["delay"]
            self.state.proposals[key] = records.Proposal(a["id"], [], a["predecessor"], ready_at, event.block)
        self.state.proposals[key].calls.append(records.ProposedCall(a["target"], a["value"], a["data"]))

    def CallSalt(self, a: Args) -> None:
        proposal = self.state.proposals.get("0x" + a["id"].hex())
        if proposal is not None and self.event.name == "CallSalt":
            proposal.salt = a["salt"]
        elif proposal is not None:
            proposal.status = "done" if self.event.name == "CallExecuted" else "cancelled"

    CallExecuted = Cancelled = CallSalt

    def RoleGranted(self, a: Args) -> None:
        role = _ROLES.get(a["role"], "0x" + a["role"].hex())
        others = self.state.roles.get(role, ())
        if self.event.name == "RoleGranted":
            self.state.roles[role] = (*others, a["account"])
        else:
            self.state.roles[role] = tuple(account for account in others if account != a["account"])

    RoleRevoked = RoleGranted


# Applying events


REDUCERS = {kind.__name__: kind for kind in Reducer.__subclasses__()}


def apply(state: State, event: Event) -> None:
    """Change the state, in place, as the event says. Events without meaning for it are ignored."""
    reduce = getattr(REDUCERS.get(event.contract), event.name, None)
    if reduce is not None:
        reduce(REDUCERS[event.contract](state, event), event.args)
    state.head = max(state.head, event.block)
    state.time = max(state.time, event.timestamp)
