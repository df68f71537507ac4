"""What happened on chain to the one who is watched: each event has one name, whatever is replayed. Pure."""

from collections.abc import Iterator
from dataclasses import dataclass

from chain.judging import CaseOutcome
from chain.state import State
from protocol.amounts import show_tokens
from protocol.verdict import Code
from runtime.watch.config import WatchConfig


@dataclass(frozen=True)
class NewsItem:
    """`key` is the same for the same event in every look."""

    key: str
    event: str
    what: str


EVENTS = ("slashed", "ejected", "disputed", "dispute_decided", "canary_opened", "case_opened", "case_decided")


def news(config: WatchConfig, state: State) -> Iterator[NewsItem]:
    """Everything that ever happened, oldest of a kind first."""
    yield from _slashes(config, state)
    for (pool, node), account in state.accounts.items():
        if pool == config.pool and account.ejected and (config.owner or node == config.node):
            why = Code(account.eject_code).label
            yield NewsItem(f"ejected:{node}:{account.eject_sequence}", "ejected", f"node {node} was ejected: {why}")
    for (pool, sequence), dispute in state.disputes.items():
        submission = state.submissions.get((pool, sequence))
        mine = submission is not None and submission.node == config.node
        if pool != config.pool or not (mine or config.owner):
            continue
        what = f"file {sequence} is disputed by {dispute.disputer}"
        yield NewsItem(f"disputed:{sequence}", "disputed", what)
        if dispute.resolved:
            how = "overturned" if dispute.overturned else "upheld"
            what = f"the dispute of file {sequence} is decided: its outcome is {how}"
            yield NewsItem(f"decided:{sequence}", "dispute_decided", what)
    for (pool, sequence), canary in state.canaries.items():
        accused = [seat for seat in canary.accused if _owned(config, state, seat)]
        if pool == config.pool and accused:
            what = f"file {sequence} was a canary, which seats {accused} accepted"
            yield NewsItem(f"canary:{sequence}", "canary_opened", what)
    yield from _cases(config, state)


def _cases(config: WatchConfig, state: State) -> Iterator[NewsItem]:
    """Node cases; how to see what a jury found is said with each."""
    for number, case in state.cases.items():
        if case.pool != config.pool or not (config.owner or case.node == config.node):
            continue
        files = f"{len(case.sequences)} files from {case.sequences[0]} to {case.sequences[-1]}"
        what = f"{case.accuser} accuses node {case.node} by {files}: node case {number}"
        yield NewsItem(f"case:{number}", "case_opened", what)
        if case.outcome is not CaseOutcome.OPEN:
            took = f", {show_tokens(case.slashed)} tokens of its stake are gone" if case.slashed else ""
            what = f"node case {number} against {case.node} is {case.outcome.name.lower()}{took}"
            yield NewsItem(f"case_decided:{number}", "case_decided", f"{what} (muster verify case {number})")


def _slashes(config: WatchConfig, state: State) -> Iterator[NewsItem]:
    for one in state.slashes:
        mine = one.who == config.node if one.kind == "node" else _owned(config, state, int(one.who))
        if mine or (config.owner and one.pool == config.pool):
            key = f"slashed:{one.kind}:{one.who}:{one.pool}:{one.sequence}:{one.tx}"
            what = f"{one.kind} {one.who} lost {show_tokens(one.amount)} tokens over file {one.sequence}"
            yield NewsItem(key, "slashed", what)


def _owned(config: WatchConfig, state: State, seat: int) -> bool:
    return config.seats_of is not None and seat in state.seats and state.seats[seat].owner == config.seats_of
