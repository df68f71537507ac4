"""How difficult a pool's problems were to its own models, by the rows of a data set: what a curriculum goes by.

Whoever has chain and bucket has the rows (dataset/export.py), so these rates are nobody's word. The folder itself is
believed here: `muster dataset verify` compares it with the chain.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from dataset.document import CONFIG
from dataset.row import DatasetRow
from dataset.tables import read_rows
from dataset.verify import load
from protocol.config import PoolConfig
from protocol.curriculum import Curriculum, Difficulty, SolveRate
from protocol.documents import load_document
from protocol.environments import Drawn, drawn
from protocol.errors import IntegrityError

_LINE_BYTES = 16 << 20


@dataclass(frozen=True)
class DifficultyReport:
    """`rates`: of every problem that was tried, in the order of environments and seeds."""

    config: PoolConfig
    rates: dict[Drawn, SolveRate]

    def counts(self, usual: Curriculum) -> dict[str, Counter[Difficulty]]:
        """Environment → how many of its tried problems have which difficulty by its own curriculum, or the usual."""
        found: dict[str, Counter[Difficulty]] = {one.called: Counter() for one in self.config.environments}
        for problem, rate in self.rates.items():
            own = self.config.environments[problem.environment]
            found[own.called][rate.difficulty(own.curriculum or usual)] += 1
        return found


def measure(folder: Path, before: int | None = None) -> DifficultyReport:
    """Of the data set in `folder`; `before`: only tries by policy steps before that one. Raises ConfigError where there
    is no data set, IntegrityError for one that cannot be read."""
    config = load_document(folder / CONFIG, PoolConfig, toml=False)
    rates: dict[Drawn, SolveRate] = {}
    for row in _rows(folder, before):
        problem = drawn(config.environments, row.problem_seed)
        own = config.environments[problem.environment].curriculum
        solved = row.task_reward >= (own.solved if own is not None else 1.0)
        rates[problem] = rates.get(problem, SolveRate()) + SolveRate(1, int(solved))
    ordered = sorted(rates.items(), key=lambda item: (item[0].environment, item[0].seed))
    return DifficultyReport(config, dict(ordered))


def _rows(folder: Path, before: int | None) -> Iterator[DatasetRow]:
    files = load(folder).dataset.files
    kind = files[0].format if files else "jsonl"
    for file in files:
        if file.format == kind:
            for row in read_rows(folder / file.path, kind, _LINE_BYTES):
                if isinstance(row, IntegrityError):
                    raise row
                if _counts(row, before):
                    yield row


def _counts(row: DatasetRow, before: int | None) -> bool:
    return before is None or row.policy_step < before
