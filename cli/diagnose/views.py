"""What status commands show, as pure functions of the projected state: JSON-ready dictionaries and their texts."""

import statistics
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from typing import Any

from chain.contracts import DRAW_REACH
from chain.indexer.records import Account, Lane, Pool, Round, Seat, Slash, Status, Submission
from chain.indexer.state import Standing, State, describe, needed, seats_in, standing_of
from cli.output import clock, counted, fields, seconds, table
from protocol.config import PoolConfig
from protocol.encoding import TOKEN, show_tokens
from protocol.errors import printable
from protocol.verdict import LANE, Code, code_at, unpack


def picked(record: object, *names: str) -> dict[str, Any]:
    """The attributes of a record that a view shows as they are."""
    return {name: getattr(record, name) for name in names}


def waiting(state: State, sub: Submission, now: int) -> str:
    """`waiting for … since …`, or empty when nothing can happen to the file any more."""
    if sub.disputed:
        opened = state.disputes.get((sub.pool, sub.sequence)) or state.canaries.get((sub.pool, sub.sequence))
        return f"waiting for a jury's verdict since {clock(opened.time if opened else sub.decided_time)}"
    if sub.status == Status.PENDING:
        lane = state.lanes.get((sub.pool, sub.lane))
        return _lane(lane, sub) if lane else f"waiting for its lane since {clock(sub.time)}"
    if sub.is_final(now):
        return ""
    if now < sub.final_time:
        return f"waiting for the challenge window to end at {clock(sub.final_time)}, since {clock(sub.decided_time)}"
    return f"waiting for somebody to finalize it since {clock(sub.final_time)}"


def _lane(lane: Lane, sub: Submission) -> str:
    newest = lane.round
    again = " (second committee)" if newest.round else ""
    if not newest.drawn:
        return f"waiting for block {newest.seed_block} and the committee's draw{again} since {clock(sub.time)}"
    if not newest.all_committed:
        got, of = len(newest.commits), len(newest.seats)
        return f"waiting for votes{again}, {got} of {of} in, until {clock(newest.commit_until)}"
    if not newest.all_revealed:
        got, of = len(newest.reveals), len(newest.seats)
        return f"waiting for votes to be opened{again}, {got} of {of} are, until {clock(newest.reveal_until)}"
    return f"waiting for somebody to settle the lane{again} since {clock(newest.drawn_time)}"


def reason(state: State, sub: Submission) -> str:
    """Why a file was not accepted, with the committee's count; empty for accepted and pending files."""
    if sub.status in (Status.PENDING, Status.ACCEPTED):
        return ""
    label, votes = Code(sub.code).label, list(votes_on(state, sub).values())
    if not votes:
        return label
    labels = ", ".join(Code(code).label for code in votes)
    return f"{label} ({votes.count(sub.code)} of {len(votes)} opened votes: {labels})"


def votes_on(state: State, sub: Submission) -> dict[int, int]:
    """Seat → code of every opened vote of the newest committee that looked at the file."""
    lane = state.lanes.get((sub.pool, sub.lane))
    if lane is None:
        return {}
    for newest in reversed(lane.rounds):
        votes = {newest.seats[m]: code_at(codes, sub.place) for m, (codes, _) in sorted(newest.reveals.items())}
        if votes:
            return {seat: code for seat, code in votes.items() if code}
    return {}


def node_view(state: State, node: str, now: int, pool: int | None = None) -> dict[str, Any] | None:
    """One node; `now` is chain time. None when it is not registered. With `pool`, only that pool's account."""
    record = state.nodes.get(node)
    if record is None:
        return None
    accounts = [a for (of, who), a in sorted(state.accounts.items()) if who == node and pool in (None, of)]
    locked = record.pool or record.frozen or now < record.release_at  # all of the stake or nothing, as on chain
    return {
        "node": node,
        **picked(record, "operator", "stake", "slashed", "pool", "release_at"),
        "withdrawable": 0 if locked else record.stake,
        "accounts": [account_view(state, account, now) for account in accounts],
    }


def account_view(state: State, account: Account, now: int) -> dict[str, Any]:
    """Units and base units of one node in one pool. `earned`: accepted so far; `pending`: submitted, not judged;
    `vesting`: accepted, not claimable yet; `claimable`: what `claim` would pay now."""
    rate = state.pools[account.pool].terms.rate
    units = state.claimable_units(account.pool, account.node, now)
    unclaimed = max(account.units_earned - account.units_spent - units, 0)
    subs = state.submissions_of(account.pool, account.node)
    return {
        **picked(account, "pool", "joined_step", "paid", "slashed"),
        "standing": standing(account),
        "next_counter": account.counter,
        "units": {"pending": account.units_pending, "accepted": account.units_awarded, "claimable": units},
        "earned": account.units_awarded * rate,
        "pending": account.units_pending * rate,
        "vesting": unclaimed * rate,
        "claimable": units * rate,
        "submissions": [submission_view(state, sub, now) for sub in subs],
    }


def standing(account: Account) -> str:
    """What the node may do in the pool: member, ejected, removed, frozen or left."""
    standing = standing_of(account)
    words = {
        Standing.EJECTED: f"ejected ({account.eject_reason})",
        Standing.REMOVED: "removed by the pool's owner",
        Standing.FROZEN: "frozen until a rejection is final",
    }
    return words.get(standing, str(standing))


def submission_view(state: State, sub: Submission, now: int) -> dict[str, Any]:
    """`disputable`: it was refused, and a jury can still be asked."""
    why = reason(state, sub)
    return {
        **picked(sub, "sequence", "step", "counter", "units", "code", "slashed", "time", "tx"),
        **_outcome(state, sub, now),
        "reason": why,
        "disputable": bool(why) and _in_window(sub, now),
        "sha256": sub.sha256.hex(),
    }


def _outcome(state: State, sub: Submission, now: int) -> dict[str, Any]:
    return {
        "status": str(sub.status),
        "final": sub.is_final(now),
        "final_time": sub.final_time,
        "waiting": waiting(state, sub, now),
    }


def _in_window(sub: Submission, now: int) -> bool:
    """Whether a jury can still be asked, if the file is decided."""
    return not sub.disputed and not sub.finalized and now < sub.final_time


_NEWEST_WAITS = 20


def pool_view(state: State, number: int, now: int) -> dict[str, Any] | None:
    """One pool; None when there is none of that number. `free` is the budget that is neither reserved nor owed."""
    pool = state.pools.get(number)
    if pool is None:
        return None
    subs = state.submissions_of(number)
    counts = Counter(sub.status for sub in subs)
    pending = [sub for sub in subs if not sub.is_final(now)]
    return {
        **picked(pool, "pool", "owner", "status", "step"),
        "steps": [{**picked(step, "step", "time"), "manifest": step.manifest.hex()} for step in pool.steps],
        "config_hash": pool.config_hash.hex(),
        "service": {"key": pool.service, "url": pool.service_url},
        "seats": judging_seats(state, pool),
        "terms": {**vars(pool.terms), "configHash": pool.terms.configHash.hex()},
        "money": money(state, pool),
        "nodes": nodes(state, number),
        "submissions": {str(status): counts[status] for status in Status},
        "units_accepted": sum(sub.units for sub in state.accepted(number)),
        "waits": [
            {**picked(sub, "sequence", "node"), "waiting": waiting(state, sub, now)} for sub in pending[-_NEWEST_WAITS:]
        ],
    }


def judging_seats(state: State, pool: Pool) -> dict[str, Any]:
    """The seats of the pool's class, and how many it must have to take work."""
    opted_in = seats_in(state, pool)
    counts = {"count": len(opted_in), "needed": needed(pool.terms), "owners": len({seat.owner for seat in opted_in})}
    return {"group": describe(pool.validator_group), **counts}


def money(state: State, pool: Pool) -> dict[str, int]:
    """Where the pool's base_units are and went. `forfeited`: slashed nodes' burnt pay. `owed`: accepted
    and not claimed; `pending`: reserved for unjudged units (pay only, fees come on top)."""
    accounts = [a for (of, _), a in state.accounts.items() if of == pool.pool]
    rate = pool.terms.rate
    return {
        **picked(pool, "escrow", "funded", "claimed", "fees_paid", "fees_burnt"),
        **picked(pool, "forfeited", "from_stakes", "leftover"),
        "owed": sum(a.units_earned - a.units_spent for a in accounts) * rate,
        "pending": sum(a.units_pending for a in accounts) * rate,
    }


def nodes(state: State, number: int) -> list[dict[str, Any]]:
    """Every node that ever joined, in order of address."""
    return [
        {
            **picked(account, "node", "operator", "units_awarded", "units_pending", "paid", "slashed"),
            "standing": standing(account),
            "stake": state.nodes[node].stake if node in state.nodes else 0,
            "submitted": account.counter,
        }
        for (of, node), account in sorted(state.accounts.items())
        if of == number
    ]


def pool_phase(pool: dict[str, Any]) -> str:
    """One sentence on what the pool is doing, from its view."""
    closed = {"paused": "paused by its owner", "closing": "closing: no new work", "settled": "settled"}
    if pool["status"] in closed:
        return closed[pool["status"]]
    if pool["status"] == "understaffed":
        seats = pool["seats"]
        if seats["count"] < seats["needed"]:
            return f"understaffed: {seats['count']} of {seats['needed']} seats judge {seats['group']}, it takes no work"
        return "understaffed until its seats are counted in the epoch to come: muster pool set-service --count-seats"
    if pool["step"] < 0:
        return "waiting for its owner to publish policy step 0"
    if not any(node["standing"] == "member" for node in pool["nodes"]):
        return "waiting for nodes to join"
    return f"working on policy step {pool['step']}"


def seats_of(state: State, address: str) -> list[Seat]:
    """Seats that `address` owns or votes for, closed ones included."""
    return [seat for _, seat in sorted(state.seats.items()) if address in (seat.owner, seat.voter)]


def seat_view(state: State, seat: Seat, now: int) -> dict[str, Any]:
    """One seat. `pools`: those it may be drawn for; `due`: memberships whose fees and penalties can be settled by
    `claim` now; `drawable_until`: the last epoch in which a seat that left can be drawn."""
    memberships = list(memberships_of(state, seat.seat))
    leaving = seat.left_epoch and not seat.release_at and not seat.closed
    return {
        **picked(seat, "seat", "owner", "voter", "bond", "earned", "fees", "penalised", "release_at"),
        "standing": seat_standing(seat),
        "groups": [describe(group) for group in seat.groups],
        "pools": [pool.pool for pool in state.pools.values() if seat.active and pool.validator_group in seat.groups],
        "drawn": len(memberships),
        "voted": sum(1 for _, round_, member in memberships if member in round_.reveals),
        "due": len(list(due(state, [seat.seat], now))),
        "drawable_until": seat.left_epoch + DRAW_REACH if leaving else None,
        "penalties": [
            picked(slash, "pool", "sequence", "code", "amount", "time", "tx") | {"opened": _opened(memberships, slash)}
            for slash in state.slashes
            if slash.kind == "seat" and slash.who == str(seat.seat)
        ],
    }


def _opened(memberships: list[tuple[Lane, Round, int]], slash: Slash) -> bool | None:
    """Whether the vote that a penalty is about was opened; None if the penalty is about no vote, or several fit."""
    opened = {
        member in committee.reveals
        for lane, committee, member in memberships
        if (lane.pool, lane.lane) == (slash.pool, slash.sequence // LANE) and committee.settled
    }
    return opened.pop() if len(opened) == 1 and not slash.code else None


def seat_standing(seat: Seat) -> str:
    """active, leaving (with the epoch), evicted, unbonding or closed."""
    if seat.closed:
        return "closed"
    if seat.release_at:
        return "unbonding"
    if seat.left_epoch:
        return f"{'evicted' if seat.evicted else 'leaving'} in epoch {seat.left_epoch}"
    return "active"


def memberships_of(state: State, seat: int) -> Iterator[tuple[Lane, Round, int]]:
    """Every committee the seat was drawn into: lane, round, member."""
    for lane in (lane for pool in sorted(state.pools) for lane in state.lanes_of(pool)):
        for round_ in lane.rounds:
            if seat in round_.seats:
                yield lane, round_, round_.seats.index(seat)


def due(state: State, seats: Collection[int], now: int) -> Iterator[tuple[int, int, int]]:
    """(pool, lane, round) of every committee with one of these seats that `Court.closeCommittee` would close at chain
    time `now`: every round that judges its votes is settled, the challenge window over, no file before a jury."""
    for lane in (lane for pool in sorted(state.pools) for lane in state.lanes_of(pool)):
        for round_ in lane.rounds:
            judges = lane.rounds[round_.round :] if Code.UNDECIDED in unpack(round_.codes) else [round_]
            settled = all(panel.settled and Code.DISPUTED not in unpack(panel.codes) for panel in judges)
            over = now >= judges[-1].settled_time + state.pools[lane.pool].terms.challengeWindow
            if settled and over and not round_.closed and not set(seats).isdisjoint(round_.seats):
                yield lane.pool, lane.lane, round_.round


def jury_duties(state: State, seat: int) -> Iterator[tuple[int, int]]:
    """(trial, juror) of every concluded jury whose juror's fee or penalty is still open."""
    for number, trial in sorted(state.trials.items()):
        if seat in trial.seats and trial.settled and trial.seats.index(seat) not in trial.closed:
            yield number, trial.seats.index(seat)


def open_rounds(state: State, seat: int) -> Iterator[dict[str, Any]]:
    """The committees that the seat is in and that are not settled yet."""
    for lane, round_, member in memberships_of(state, seat):
        if not round_.settled:
            voted = {"committed": member in round_.commits, "revealed": member in round_.reveals}
            yield {"pool": lane.pool, "lane": lane.lane, "seat": seat, **voted}


_AMOUNTS = ("stake", "paid", "slashed", "bond", "earned", "fees", "penalised")


def _rows(records: list[dict[str, Any]], names: Sequence[str]) -> list[list[object]]:
    """The named fields of each record, amounts in tokens."""
    return [[show_tokens(record[name]) if name in _AMOUNTS else record[name] for name in names] for record in records]


def files_text(account: dict[str, Any], last: int) -> str:
    """Return a node's `last` newest files in a pool (0: all), from its account's view."""
    shown = [file | {"why": file["reason"] or file["waiting"]} for file in account["submissions"][-last:]]
    headers = ["file", "step", "counter", "units", "status", "why, or what it waits for"]
    rows = _rows(shown, ["sequence", *headers[1:5], "why"])
    evidence = [f"file {file['sequence']}: {line}" for file in shown for line in file.get("evidence", ())]
    head = f"pool {account['pool']}: {account['standing']}"
    return "\n".join([head, table(headers, rows, empty="no submissions yet"), *evidence])


def pool_text(view: dict[str, Any]) -> str:
    """Return a pool's nodes and what its files wait for, from its view."""
    rows = _rows(view["nodes"], ["node", "standing", "stake", "submitted", "units_awarded", "paid", "slashed"])
    titles = ["node", "standing", "stake", "files", "verified", "paid", "slashed"]
    waits = [f"file {wait['sequence']}: {wait['waiting']}" for wait in view["waits"]]
    return "\n\n".join(filter(None, [table(titles, rows, empty="no nodes"), "\n".join(waits)]))


def seats_line(seats: dict[str, Any]) -> str:
    """Return how many seats judge a pool, from its view."""
    owners = counted(seats["owners"], "owner")
    return f"{seats['count']} of {seats['needed']} needed seats judge {seats['group']}, of {owners}"


def seats_text(epoch: int, views: list[dict[str, Any]]) -> str:
    """Return a table of every `seat_view`."""
    headers = ["seat", "standing", "judges", "bond", "drawn", "voted", "due", "earned", "penalised", "voter"]
    judges = [f"{', '.join(view['groups'])}: pools {', '.join(map(str, view['pools'])) or 'none'}" for view in views]
    shown = [
        view | {"judges": known if view["groups"] else "nothing: muster validator judge"}
        for view, known in zip(views, judges, strict=True)
    ]
    return f"epoch {epoch}\n{table(headers, _rows(shown, headers), empty='no seats')}"


MEANING = {
    Code.ACCEPT: "every check passed",
    Code.UNSURE: "no check failed, though a figure was close to its threshold; that counts as accepted",
    Code.REJECT_WEIGHTS: "its proofs do not come from the pool's weights computed in the pool's dtype",
    Code.REJECT_SAMPLING: "its tokens are not those that the pool's sampling noise gives with these weights",
    Code.REJECT_ASSIGNMENT: "it holds other problems, prompts or target lengths than were assigned to it",
    Code.REJECT_REWARD: "the rewards in it are not those that its answers get",
    Code.REJECT_DUPLICATE: "work in it was handed in before",
    Code.REJECT_TERMINATION: "an answer in it ends where the model would not have ended",
    Code.REJECT_COMMITMENT: "its bytes are not those that were committed to on chain",
    Code.MALFORMED: "it is not a file of the pool's format",
    Code.UNAVAILABLE: "its judges could not get its bytes, though the pool's service had taken them; it is paid",
    Code.CANARY: "the pool's owner planted it to see whether validators look; it never counted",
    Code.VOID: "two committees did not decide it; it is paid and never trained on",
    Code.UNDECIDED: "its committee did not agree",
}


def why_view(state: State, sub: Submission, now: int) -> dict[str, Any]:
    """Everything that `why_text` says of a file; amounts in base units, `now` in chain time."""
    rate, code = state.pools[sub.pool].terms.rate, Code(sub.code)
    votes = votes_on(state, sub)
    return {
        **picked(sub, "pool", "node", "step", "units", "time", "forfeited", "slashed", "disputed"),
        **_outcome(state, sub, now),
        "file": sub.sequence,
        "code": code.label,
        "meaning": MEANING.get(code, ""),
        "votes": {seat: Code(vote).label for seat, vote in votes.items()},
        "agreeing": sum(1 for vote in votes.values() if vote == sub.code),
        "decided": sub.decided_time,
        "pay": sub.units * rate if sub.is_paid else 0,
        "disputable": bool(sub.decided_time) and _in_window(sub, now),
    }


def why_text(view: dict[str, Any], evidence: list[str]) -> str:
    """Return the same in sentences, with what the judges published as `evidence`."""
    lines = [
        f"File {view['file']} of pool {view['pool']}: {view['units']} output tokens of policy step {view['step']}, "
        f"handed in by {view['node']} at {clock(view['time'])}."
    ]
    if view["status"] == str(Status.PENDING):
        return "\n".join([*lines, f"Not judged yet: {view['waiting']}."])
    lines.append(f"Outcome: {view['code']}: {view['meaning']}.")
    if view["votes"]:
        votes = ", ".join(f"seat {seat} {label}" for seat, label in view["votes"].items())
        lines.append(f"{view['agreeing']} of {len(view['votes'])} opened votes say so: {votes}.")
    lines += [f"  {line}" for line in evidence]
    if view["slashed"]:
        lines.append(f"It cost the node {show_tokens(view['slashed'])} tokens of its stake.")
    elif view["forfeited"]:
        lines.append("Its pay was forfeited: another file of the node was found to be forged before it vested.")
    elif view["pay"]:
        lines.append(f"It earns {show_tokens(view['pay'])} tokens.")
    else:
        lines.append("It is not paid; the stake is untouched.")
    if view["disputed"]:
        lines.append(f"It is disputed: {view['waiting']}.")
    elif view["disputable"]:
        order = f"muster node dispute --pool {view['pool']} --file {view['file']}"
        lines.append(f"Whoever sees it otherwise can dispute it until {clock(view['final_time'])}: {order}")
    elif view["final"]:
        lines.append("That is final.")
    elif view["waiting"]:
        lines.append(f"{view['waiting'].capitalize()}.")
    return "\n".join(lines)


_HOUR = 3600


def terms_for_node(state: State, pool: Pool, config: PoolConfig, stake: int, now: int) -> str:
    """What a node operator agrees to; `stake` in base units, `now` in chain time."""
    terms, shape = pool.terms, config.work
    most = shape.units * terms.rate
    return fields(
        {
            f"pool {pool.pool}": printable(config.name),
            "model": printable(f"{config.model.source}, licence {config.model.license}, {config.model.dtype}"),
            "environments": printable(config.environment_names),
            "pay": f"{show_tokens(terms.rate)} tokens per verified output token, at most {show_tokens(most)} per file",
            "earnings": earnings(state, pool, now),
            "paid": f"{seconds(terms.challengeWindow)} after a file was accepted",
            "stake": f"{show_tokens(stake)} tokens; it unlocks {seconds(pool.unbonding)} after leaving",
            "at risk": "the whole stake, if a file is found to be forged; honest work in the pool's dtype is safe",
            "configuration": pool.config_hash.hex(),
        }
    )


def earnings(state: State, pool: Pool, now: int) -> str:
    """What the nodes that worked in the last hour earned in it, the median of them."""
    units: Counter[str] = Counter()
    for file in state.accepted(pool.pool):
        if file.decided_time > now - _HOUR:
            units[file.node] += file.units
    if not units:
        return "unknown: nobody's work was accepted here in the last hour"
    since = max(now - _HOUR, pool.steps[0].time if pool.steps else now - _HOUR)
    hourly = statistics.median(units.values()) * pool.terms.rate * _HOUR // max(1, now - since)
    return f"{hourly / TOKEN:.2f} tokens an hour, by the last hour of {counted(len(units), 'working node')} (median)"


def penalty_cause(penalty: dict[str, Any]) -> str:
    """Say why a seat lost money, from the entry of its view."""
    if code := Code(penalty["code"]):
        return f"it accepted a file that was {code.label}"
    if penalty["opened"] is None:
        return "a vote against the outcome, or none in time"
    return "a vote against the outcome" if penalty["opened"] else "no vote was opened in time"
