"""Files that rows of the benchmark of evidence want, the laws that honest ones give, and what cheated ones pay."""

import multiprocessing
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.evidence_files import MeasuredRow, figures, folder_of, measured, produce, steered, train
from benchmarks.evidence_lives import BLOCKS, ProblemBlock, Table
from benchmarks.evidence_settings import HONEST, RESTRICTED, EvidenceSetting, Kind
from calibration.envelope import HonestSums, as_block, as_problem, pair_law
from protocol.encoding import tagged_hash
from protocol.evidence.coherence import PROBLEMS, coherence
from protocol.evidence.law import PairLaw
from protocol.evidence.sums import Sum, block_sums, problem_sums
from protocol.seeds import AUDIT_EVERYTHING, audit_sample
from protocol.toploc.codec import Drift

SAFETY = 1.1
PILOT = 4
"""One calibration file of four chooses the bets, the others their rates."""
Progress = Callable[[str], None]
Row = dict[str, Any]


class Making:
    """Makes and measures files as rows want them, every engine in a process of its own: vLLM keeps global state."""

    def __init__(self, setting: EvidenceSetting, under: Path, progress: Progress) -> None:
        self.setting, self.home, self._progress = setting, setting.home(under), progress
        self._there: set[tuple[str, str, Kind]] = set()
        self._laws: dict[tuple[str, str, int], tuple[PairLaw, Row]] = {}
        self.home.mkdir(parents=True, exist_ok=True)

    def files(self, pair: tuple[str, str], *kinds: Kind) -> None:
        """See to it that a pair's files of these kinds are measured."""
        worker, verifier = pair
        if missing := [kind for kind in dict.fromkeys(kinds) if (worker, verifier, kind) not in self._there]:
            if any(kind.rate and not folder_of(kind, self.home).is_dir() for kind in missing):
                self._apart("transformers", "policy steps", train, missing, self.home, self.setting)
            setting = self.setting.of(pair)
            self._apart(worker, f"{worker} made", produce, worker, missing, self.home, setting)
            self._apart(
                verifier, f"{verifier} measured files of {worker}", measured, *pair, missing, self.home, setting
            )
            self._there |= {(worker, verifier, kind) for kind in missing}

    def law(self, pair: tuple[str, str], rate: int) -> tuple[PairLaw, Row]:
        """The law of a pair at an audit rate, and what it was learned from."""
        if (*pair, rate) not in self._laws:
            self.files(pair, HONEST[0])
            self._laws[*pair, rate] = _law(pair, self.home, self.setting.of(pair), rate)
        return self._laws[*pair, rate]

    def table(self, pair: tuple[str, str], kind: Kind, rate: int) -> Table:
        """What every block of a kind's files pays."""
        return Table.of(self.law(pair, rate)[0], self.blocks(pair, kind, rate))

    def blocks(self, pair: tuple[str, str], kind: Kind, rate: int = AUDIT_EVERYTHING) -> list[ProblemBlock]:
        """Every block of a kind's files; each file audited as often as the rate leaves rows out."""
        self.files(pair, kind)
        samples, draws = self.setting.work.samples_per_problem, AUDIT_EVERYTHING // rate
        drawn = audited(figures(*pair, kind, self.home, self.setting), rate, draws, samples)
        return [one for blocks in drawn for one in blocks]

    def steered(self, worker: str, kind: Kind) -> Row:
        found: Row = self._apart(worker, f"{worker} {kind.name}", steered, worker, kind, self.home, self.setting)
        return found

    def _apart(self, engine: str, what: str, function: Callable[..., Any], *arguments: object) -> Any:
        with _environment_of(engine), ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as process:
            found = process.submit(function, *arguments).result()
        self._progress(f"{what}: {found}")
        return found


def scaled(blocks: Iterable[ProblemBlock]) -> list[ProblemBlock]:
    """Blocks whose figures are all larger by the safety factor, as a calibration moves them: the most that the law's
    factor provides for in machines that were not measured."""
    return [ProblemBlock([_scaled(one) for one in block.problems], _scaled(block.together)) for block in blocks]


def _scaled(sums: Mapping[str, Sum]) -> dict[str, Sum]:
    return {name: Sum(one.total + (SAFETY - 1) * abs(one.total), one.count) for name, one in sums.items()}


@contextmanager
def _environment_of(engine: str) -> Iterator[None]:
    """What a process that is started meanwhile inherits: libraries read it when they are imported."""
    wanted = RESTRICTED[engine][1] if engine in RESTRICTED else {}
    before = {name: os.environ.get(name) for name in wanted}
    os.environ.update(wanted)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _law(pair: tuple[str, str], home: Path, setting: EvidenceSetting, rate: int) -> tuple[PairLaw, Row]:
    drawn = list(audited(figures(*pair, HONEST[0], home, setting), rate, 1, setting.work.samples_per_problem))
    pilot = [block for number, file in enumerate(drawn) if number % PILOT == 0 for block in file]
    rest = [block for number, file in enumerate(drawn) if number % PILOT for block in file]
    law = pair_law(*pair, [_measured(rest)], _measured(pilot), SAFETY, setting.laws)
    own = _measured(rest)
    sums = [*np.array(own.problems).sum(axis=0), *np.array(own.blocks).sum(axis=0)]
    rates = {name: float(f"{s / n:.4g}") if n else 0.0 for name, (s, n) in zip(law.bets, sums, strict=True)}
    bets = {name: [list(vars(bet).values()) for bet in made] for name, made in law.bets.items()}
    tokens = round(means(rest)["tokens"])
    about = {"files": len(drawn), "problems": len(own.problems), "tokens": tokens}
    return law, about | {"honest_rates": rates, "bets": bets}


def means(blocks: Sequence[ProblemBlock]) -> dict[str, float]:
    """Of a file, on average: tokens that were audited, and misses that nothing explains."""
    own = [problem["unexplained"] for block in blocks for problem in block.problems]
    files = len(blocks) / BLOCKS
    unexplained = sum(one.total for one in own) / files
    return {"tokens": sum(one.count for one in own) / files, "unexplained": float(f"{unexplained:.3g}")}


def _measured(blocks: Sequence[ProblemBlock]) -> HonestSums:
    problems = [as_problem(problem) for block in blocks for problem in block.problems]
    return HonestSums(problems, [as_block(block.together) for block in blocks])


def audited(files: Iterable[list[MeasuredRow]], rate: int, draws: int, samples: int) -> Iterator[list[ProblemBlock]]:
    """A file's blocks of problems by the rows that audits at a rate draw, `draws` times for each file; empty sums of
    problems of which none is drawn, so that files have equally many."""
    for number, rows in enumerate(files):
        for draw in range(draws):
            sample = set(audit_sample(tagged_hash("muster/benchmark-evidence-audit/1", draw), number, len(rows), rate))
            each = PROBLEMS * samples
            yield [
                _block([row for row in rows[at : at + each] if row.figures.row in sample], at // samples, samples)
                for at in range(0, len(rows), each)
            ]


def _block(rows: Sequence[MeasuredRow], first: int, samples: int) -> ProblemBlock:
    problems = [[row for row in rows if row.figures.row // samples == first + place] for place in range(PROBLEMS)]
    drifts = [Drift(*np.sum([row.drift for row in own], axis=0)) for own in problems if own]
    (together,) = block_sums([coherence(drifts)])
    return ProblemBlock([problem_sums([row.figures for row in own]) for own in problems], together)
