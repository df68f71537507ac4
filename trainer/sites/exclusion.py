"""Who holds up outer steps has no part in the next ones, longer each time, by what the log says alone.

A site holds up a step where the others lose an attempt, or a time-out, by it: its contribution is refused, it signs
two, it falls silent, it leaves with a part of the work, or says that it cannot use its part. Each such step is a mark;
the m-th mark keeps the site out of the 2^(m−1) − 1 outer steps after the next boundary, at most 63. A mark is taken
away again for every eight outer steps that the site contributed to. Who is shown to have reduced a shard wrongly gets
all seven marks at once. So a single kill costs a site nothing more, and
one that holds up every step that it has a part in holds up nine of 200.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

MOST_MARKS, MOST_DISPUTED = 7, 3
"""A site that says that it cannot use a file may be right, and another that says it could may lie: by that alone it
gets three marks at most, and so has a part in every fourth step at least."""
FORGIVEN_AFTER = 8


@dataclass(frozen=True)
class SiteMarks:
    """Of one site: `marks`, of which the last keeps it out of outer steps before `until`; `made`: outer steps that it
    contributed to since a mark came or went."""

    marks: int = 0
    until: int = 0
    made: int = 0

    def held_up(self, step: int, disputed: bool) -> "SiteMarks":
        """After outer step `step` that it held up."""
        most = MOST_DISPUTED if disputed else MOST_MARKS
        marks = max(self.marks, min(self.marks + 1, most))
        return SiteMarks(marks, step + (1 << (marks - 1)))

    def lied(self, step: int) -> "SiteMarks":
        """After outer step `step`, of which it reduced a shard to something else."""
        return SiteMarks(MOST_MARKS, step + (1 << (MOST_MARKS - 1)))

    def contributed(self) -> "SiteMarks":
        """After an outer step that was made of its contribution too."""
        made = self.made + 1
        return replace(self, made=made) if made < FORGIVEN_AFTER else SiteMarks(self.marks - 1, self.until)


Marks = Mapping[str, SiteMarks]
"""Of the sites that have any."""


def after_step(
    marks: Marks,
    step: int,
    held_up: Collection[str],
    disputed: Collection[str],
    contributors: Collection[str],
    liars: Collection[str] = (),
) -> Marks:
    """After outer step `step`. `disputed`: those of `held_up` who did so by no more than their word on files; `liars`:
    who reduced a shard wrongly."""
    made = {site: one.contributed() if site in contributors else one for site, one in marks.items()}
    made |= {site: marks.get(site, SiteMarks()).held_up(step, site in disputed) for site in held_up}
    made |= {site: marks.get(site, SiteMarks()).lied(step) for site in liars}
    return {site: one for site, one in made.items() if one.marks}
