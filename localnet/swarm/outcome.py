"""The facts that a swarm's run must show, judged from what it left, and its table."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from localnet.swarm.plan import SwarmPhase, SwarmPlan
from localnet.swarm.traces import BucketContents, MemberTrace

_COLUMNS: tuple[str, ...] = (
    "member", "rounds", "alone", "own", "shared", "sent", "waited", "taken", "held-out reward", "killed",
)  # fmt: skip


class Fact(NamedTuple):
    """One line of the outcome, and whether it is as it should be."""

    text: str
    good: bool


def facts(plan: SwarmPlan, traces: Sequence[MemberTrace], contents: BucketContents) -> Iterator[Fact]:
    """Nobody stopped, nothing was trained twice, and what was shared arrived."""
    # Nobody stopped.
    broken = [one.name for one in traces if [line["round"] for line in one.lines] != list(range(len(one.lines)))]
    short = [one.name for one in traces if len(one.lines) < plan.rounds]
    made = sum(len(one.lines) for one in traces)
    yield _all(f"every member made {plan.rounds} rounds or more, each once; {made} in all", [*short, *broken])
    planned = {one.member for one in plan.kills}
    alive = [one.name for one in traces if one.name in planned and (len(one.killed) != 1 or one.restarts < 1)]
    times = Counter(phase for one in traces for phase in one.killed)
    when = ", ".join(f"{times[phase]} {phase}" for phase in SwarmPhase if times[phase])
    yield _all(f"{len(planned)} members were killed once and came back ({when})", alive)
    stood = [one.name for one in traces if one.outage.made_at_end <= one.outage.made_at_start]
    made = sum(one.outage.made_at_end - one.outage.made_at_start for one in traces)
    yield _all(f"without the bucket every member went on, {made} rounds in all", stood)
    never = [one.name for one in traces if not one.alone]
    yield _all(f"{sum(one.alone for one in traces)} rounds were made alone, some by everybody", never)

    # Nothing twice.
    again = [one.name for one in traces if one.steps != len(one.lines)]
    yield _all("each member's weights were trained in as many steps as it made rounds", again)
    twice = [f"{one.name} {name}" for one in traces for name, times in Counter(one.shared).items() if times > 1]
    yield _all("no member trained on a group twice", twice)
    own = [one.name for one in traces for name in one.shared if name.startswith(f"{one.address}/")]
    yield _all("no member took its own groups for others'", own)
    double = [f"round {number} of {member}" for (member, number), count in contents.envelopes.items() if count > 1]
    yield _all(f"{len(contents.envelopes)} envelopes, no two of one member and round", double)
    blaming = [one.name for one in traces if one.breaches]
    yield _all("nobody found anybody out", blaming)

    # What was shared arrived.
    trained = Counter(name for one in traces for name in one.shared)
    unknown = sorted(set(trained) - contents.groups)
    yield _all("every group of others that was trained on lies signed in the bucket", unknown)
    lonely = [one.name for one in traces if not one.shared]
    yield _all(f"every member trained on others' groups, {trained.total()} times in all", lonely)
    takers = Counter(name.partition("/")[0] for name in trained)
    ignored = [one.name for one in traces if not takers[one.address]]
    yield _all(f"every member's groups were taken by others, {len(trained)} of {len(contents.groups)} groups", ignored)
    waited = [(one, number) for one in traces for number in one.outage.waiting]
    lost = [f"{one.name} round {number}" for one, number in waited if not contents.envelopes[one.address, number]]
    left = [f"{one.name} round {number}" for one in traces for number in one.unsent]
    yield _all(f"the {len(waited)} envelopes that waited for the bucket were sent", [*lost, *left], bool(waited))


def _all(text: str, exceptions: Sequence[str], good: bool = True) -> Fact:
    """True without exceptions, the first of which are named."""
    if not exceptions:
        return Fact(text, good)
    more = f" and {len(exceptions) - 4} more" if len(exceptions) > 4 else ""
    return Fact(f"{text}: not so for {', '.join(exceptions[:4])}{more}", False)


def table(traces: Sequence[MemberTrace], contents: BucketContents) -> list[str]:
    """A line for each member."""
    taken = Counter(name.partition("/")[0] for one in traces for name in one.shared)
    sent = Counter(member for member, _ in contents.envelopes)
    rows = [_COLUMNS]
    for one in traces:
        measured = " → ".join(f"{reward:.3f}" for _, reward in one.held_out) or "not measured"
        numbers = (len(one.lines), one.alone, one.own, len(one.shared), sent[one.address])
        more = (len(one.outage.waiting), taken[one.address])
        rows.append((one.name, *map(str, numbers), *map(str, more), measured, ", ".join(one.killed)))
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
