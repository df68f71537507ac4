"""A run by policy step: what became of the files of each, and the columns that charts are drawn from. Pure."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from chain.indexer.records import Status
from orchestrator.status import reward_entry
from protocol.api.run import PublishedEntry, ReportEntry, RewardEntry, SubmissionEntry
from protocol.api.views import History, StepEntry, StepView

MOST_POINTS = 400


@dataclass
class StepTally:
    """Files generated with one step: how many of each status, accepted output tokens, and the earliest and latest times
    of submission and acceptance."""

    files: Counter[str] = field(default_factory=Counter)
    tokens: int = 0
    submitted: tuple[int, int] | None = None
    accepted: tuple[int, int] | None = None

    def add(self, status: str, units: int, time: int, decided: int) -> None:
        self.files[status] += 1
        self.submitted = _within(self.submitted, time)
        if status == Status.ACCEPTED:
            self.tokens += units
            self.accepted = _within(self.accepted, decided or time)


Fate = tuple[int, str, int, int, int]
"""A file's policy step, status, units, and the times of its submission and decision (0: none yet)."""


def tallies(files: Iterable[Fate]) -> dict[int, StepTally]:
    """Policy step → its tally."""
    out: dict[int, StepTally] = {}
    for step, status, units, time, decided in files:
        tally = out.get(step)
        if tally is None:
            tally = out[step] = StepTally()
        tally.add(status, units, time, decided)
    return out


def fates(entries: Iterable[SubmissionEntry]) -> Iterable[Fate]:
    return ((one.step, one.status, one.units, one.time, one.decided or 0) for one in entries)


def step_entry(published: PublishedEntry, tally: StepTally | None, report: ReportEntry | None) -> StepEntry:
    """A published step; `report` is the trainer's on its making."""
    told, found = reward_entry(report) if report else None, tally or StepTally()
    return StepEntry(
        **vars(published),
        reward=told.reward if told else None,
        heldout=told.heldout if told else None,
        files=dict(found.files),
        tokens=found.tokens,
        submitted=found.submitted,
        accepted=found.accepted,
    )


def step_view(published: PublishedEntry, tally: StepTally | None, report: ReportEntry | None) -> StepView:
    return StepView(**vars(step_entry(published, tally, report)), report=report)


def history(
    published: Sequence[PublishedEntry],
    found: Mapping[int, StepTally],
    reports: Sequence[ReportEntry],
    most: int = MOST_POINTS,
) -> History:
    """The columns of a run's charts: `time`, `tokens`, `files/…` by status, `reward`, `heldout/SET` and `error/SET`,
    `metric/…` and `timing/…` as the trainer reported them."""
    times = {one.step: one.time for one in published}
    told = {one.step: one for one in reports}
    steps = _thinned(sorted({*times, *told, *found}), most)
    rows = [_row(times.get(step), found.get(step), told.get(step)) for step in steps]
    names = sorted({name for row in rows for name in row})
    return History(steps=steps, columns={name: [row.get(name) for row in rows] for name in names})


def _row(time: int | None, tally: StepTally | None, report: ReportEntry | None) -> dict[str, float | None]:
    row: dict[str, float | None] = {"time": time}
    if tally is not None:
        row |= {"tokens": tally.tokens} | {f"files/{status}": count for status, count in tally.files.items()}
    if report is not None:
        row |= {f"metric/{name}": value for name, value in report.metrics.items()}
        row |= {f"timing/{name}": value for name, value in report.timings.items()}
        row |= _measured(reward_entry(report))
    return row


def _measured(entry: RewardEntry) -> dict[str, float | None]:
    row: dict[str, float | None] = {"reward": entry.reward}
    for one in entry.sets:
        row |= {f"heldout/{one.name}": one.average, f"error/{one.name}": one.error}
    return row


def _thinned(steps: list[int], most: int) -> list[int]:
    """At most `most` of the steps, evenly, the first and last among them."""
    if len(steps) <= most:
        return steps
    return [steps[round(index * (len(steps) - 1) / (most - 1))] for index in range(most)]


def _within(span: tuple[int, int] | None, time: int) -> tuple[int, int]:
    return (time, time) if span is None else (min(span[0], time), max(span[1], time))
