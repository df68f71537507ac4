"""Committees, juries, disputes and canaries."""

from chain.events import Event
from chain.judging import Canary, Dispute, Panel, Round, Trial
from chain.jury_terms import jury_commit_window
from chain.reducers.registry import dispute_of, freeze, on, pay, round_of, slash, submission_of
from chain.state import State
from protocol.verdict import Code

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
