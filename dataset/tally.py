"""Counts rows as they go by. Memory grows with the number of different problems and nodes only."""

from dataclasses import dataclass, field

from dataset.document import EnvironmentTotals, Totals
from dataset.row import DatasetRow

_DIGITS = 9


@dataclass
class _Environment:
    rows: int = 0
    solved: int = 0
    task_reward: float = 0.0
    problems: set[int] = field(default_factory=set)

    def totals(self) -> EnvironmentTotals:
        return EnvironmentTotals(
            rows=self.rows,
            problems=len(self.problems),
            task_reward_mean=_mean(self.task_reward, self.rows),
            solved=self.solved,
        )


class RowTally:
    """The totals of the rows it was told of. They depend on the rows and their order alone."""

    def __init__(self) -> None:
        self._environments: dict[str, _Environment] = {}
        self._nodes: set[str] = set()
        self._submissions, self._last = 0, -1
        self._prompt = self._output = 0
        self._reward = 0.0

    def add(self, row: DatasetRow) -> None:
        one = self._environments.setdefault(row.environment, _Environment())
        one.rows += 1
        one.solved += row.task_reward >= 1
        one.task_reward += row.task_reward
        one.problems.add(row.problem)
        self._nodes.add(row.node)
        self._submissions += row.submission != self._last
        self._last = row.submission
        self._prompt += len(row.prompt_tokens)
        self._output += len(row.output_tokens)
        self._reward += row.reward

    @property
    def rows(self) -> int:
        return sum(one.rows for one in self._environments.values())

    def totals(self) -> Totals:
        """So far."""
        every, rows = self._environments, self.rows
        return Totals(
            rows=rows,
            submissions=self._submissions,
            nodes=len(self._nodes),
            problems=sum(len(one.problems) for one in every.values()),
            prompt_tokens=self._prompt,
            output_tokens=self._output,
            task_reward_mean=_mean(sum(every[name].task_reward for name in sorted(every)), rows),
            reward_mean=_mean(self._reward, rows),
            environments={name: every[name].totals() for name in sorted(every)},
        )


def _mean(total: float, rows: int) -> float:
    return round(total / rows, _DIGITS) if rows else 0.0
