"""Names of engine builds come from strangers' files: a few of them reach the sinks as they are."""

from collections.abc import Iterable
from dataclasses import replace

from trainer.metrics.catalogue import MetricSample

MOST_BUILDS = 32
OTHER = "other"


class KnownBuilds:
    """The first `MOST_BUILDS` builds keep their names, every later one is `OTHER`: a metrics server keeps each value
    of a label for ever, so a node that calls itself something new in every file would fill it."""

    def __init__(self) -> None:
        self._names: set[str] = set()

    def bounded(self, numbers: Iterable[MetricSample]) -> list[MetricSample]:
        """The same numbers; of those that now have all labels in common, the first."""
        distinct: dict[tuple[str, ...], MetricSample] = {}
        for one in map(self._renamed, numbers):
            distinct.setdefault((one.name, *one.labels.values()), one)
        return list(distinct.values())

    def _renamed(self, one: MetricSample) -> MetricSample:
        build = one.labels.get("engine")
        if build is None:
            return one
        if len(self._names) < MOST_BUILDS:
            self._names.add(build)
        return one if build in self._names else replace(one, labels={**one.labels, "engine": OTHER})
