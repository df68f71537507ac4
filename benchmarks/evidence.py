"""Evidence per node: after how many files of 128 rollouts a bf16 cheat is found, and whether honest lives ever are.

`python -m benchmarks evidence [--resume] [--only TEXT] [--seconds S]`. Files of each worker engine (transformers, vLLM)
are measured by the same engine and by the other one. What was made is kept in build/evidence, and every finished row is
a line of results/evidence_runs.jsonl, which `--resume` takes from there on any machine; `--only` makes the rows whose
pair, table or name holds the text, `--seconds` ends after so long. The law is a calibration's (half of the false
accusations 1e-6 for its error, safety factor 1.1). A cheat's 100 nodes and the honest lives are drawn anew by blocks of
eight problems, which are independent, from the measured files. Keys: attacks [{name, pair, audit, files_median,
files_p99, found, by, and of steering what it gained in a file}], watchers [{name, pair, files, bound: files that a node
may cheat in, on average, without being accused; runs: by the margin that it keeps}], lives, accused, life_runs, drift
(honest work after training that the law was not measured on), pairs {pair: files, mean rates and bets}, left (rows that
are not made yet). At audit rates below 1 (`audit`, of 65536) the same files count by the rows that such audits draw,
honest ones for the law too; a node may hand in as many more files as there are fewer rows. Lives and drift are of rate
1.
"""

import multiprocessing
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.evidence_files import (
    CHEATS,
    DRIFT,
    HONEST,
    STEERING,
    Kind,
    MeasuredRow,
    figures,
    folder_of,
    measured,
    produce,
    steered,
    train,
)
from benchmarks.evidence_lives import BLOCKS, NODES, NOTHING, Lives, ProblemBlock, Table, edges
from benchmarks.evidence_lives import PROBLEMS as IN_FILE
from benchmarks.evidence_watchers import bound, watch
from benchmarks.journal import append, resumed
from benchmarks.offline_pool import FULL_WORK
from calibration.envelope import HonestSums, as_block, as_problem, pair_law
from engines.runtime import vllm_installed
from protocol.audit import AUDIT_EVERYTHING, audit_sample
from protocol.encoding import tagged_hash
from protocol.evidence.coherence import PROBLEMS, coherence
from protocol.evidence.law import PairLaw
from protocol.evidence.process import NAMES
from protocol.evidence.sums import ACCUMULATORS, BLOCK_ACCUMULATORS, block_sums, problem_sums
from protocol.proofs.drift import Drift

HOME = Path(__file__).parent.parent / "build" / "evidence"
KEPT_RUNS = Path(__file__).parent / "results" / "evidence_runs.jsonl"
PAIRS = (("transformers", "transformers"), ("vllm", "vllm"), ("transformers", "vllm"), ("vllm", "transformers"))
SAFETY = 1.1
MOST_FILES = 16
AUDITS = (AUDIT_EVERYTHING, AUDIT_EVERYTHING // 4, AUDIT_EVERYTHING // 16, AUDIT_EVERYTHING // 64)
MARGINS = (1.0, 4.0, 8.0)
"""Nats that a watching node keeps below the bound."""
TOGETHER = 4096
"""Files that honest lives are drawn from."""
PILOT = 4
"""One calibration file of four chooses the bets, the others their rates."""
SAMPLES = FULL_WORK.samples_per_problem
Progress = Callable[[str], None]
Row = dict[str, Any]


class Wanted(NamedTuple):
    """A row of a table: `law`, `attacks`, `watchers`, `lives`, `drift`."""

    table: str
    pair: str
    name: str = ""
    audit: int = AUDIT_EVERYTHING

    @property
    def engines(self) -> tuple[str, str]:
        worker, _, verifier = self.pair.partition(" to ")
        return worker, verifier


class Making:
    """Makes and measures files as rows want them, every engine in a process of its own: vLLM keeps global state."""

    def __init__(self, home: Path, quick: bool, progress: Progress) -> None:
        self.home, self.quick, self._progress = home, quick, progress
        self._there: set[tuple[str, str, Kind]] = set()
        self._laws: dict[tuple[str, str, int], tuple[PairLaw, Row]] = {}
        home.mkdir(parents=True, exist_ok=True)

    def files(self, pair: tuple[str, str], *kinds: Kind) -> None:
        """See to it that a pair's files of these kinds are measured."""
        worker, verifier = pair
        if missing := [kind for kind in dict.fromkeys(kinds) if (worker, verifier, kind) not in self._there]:
            if any(kind.rate and not folder_of(kind, self.home).is_dir() for kind in missing):
                self._apart("policy steps", train, missing, self.home)
            self._apart(f"{worker} made", produce, worker, missing, self.home, self.quick)
            self._apart(f"{verifier} measured files of {worker}", measured, *pair, missing, self.home, self.quick)
            self._there |= {(worker, verifier, kind) for kind in missing}

    def law(self, pair: tuple[str, str], rate: int) -> tuple[PairLaw, Row]:
        """The law of a pair at an audit rate, and what it was learned from."""
        if (*pair, rate) not in self._laws:
            self.files(pair, HONEST[0])
            self._laws[*pair, rate] = _law(pair, self.home, self.quick, rate)
        return self._laws[*pair, rate]

    def table(self, pair: tuple[str, str], kind: Kind, rate: int) -> Table:
        """What every block of a kind's files pays."""
        return Table.of(self.law(pair, rate)[0], self.blocks(pair, kind, rate))

    def blocks(self, pair: tuple[str, str], kind: Kind, rate: int = AUDIT_EVERYTHING) -> list[ProblemBlock]:
        """Every block of a kind's files; each file audited as often as the rate leaves rows out."""
        self.files(pair, kind)
        drawn = audited(figures(*pair, kind, self.home, self.quick), rate, draws=AUDIT_EVERYTHING // rate)
        return [one for blocks in drawn for one in blocks]

    def steered(self, worker: str, kind: Kind) -> Row:
        found: Row = self._apart(f"{worker} {kind.name}", steered, worker, kind, self.home, self.quick)
        return found

    def _apart(self, what: str, function: Callable[..., Any], *arguments: object) -> Any:
        with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as process:
            found = process.submit(function, *arguments).result()
        self._progress(f"{what}: {found}")
        return found


def run(quick: bool, progress: Progress, resume: bool = False, only: str = "", seconds: int = 0) -> Row:
    """See the module."""
    ends = time.monotonic() + seconds if seconds else float("inf")
    path = HOME.with_name("evidence-quick.jsonl") if quick else KEPT_RUNS
    if not resume:
        path.unlink(missing_ok=True)
    kept = {_key(line): line for line in resumed(path)}
    making = Making(HOME.with_name("evidence-quick") if quick else HOME, quick, progress)
    rows = wanted(quick)
    missing = [row for row in rows if row not in kept and only in f"{row.table} {row.pair} {row.name}"]
    for row in missing:
        if time.monotonic() < ends:
            making.files(row.engines, *(kind for one in missing if one.pair == row.pair for kind in _kinds(one)))
            kept[row] = row._asdict() | _made(row, making, progress)
            append(path, kept[row])
            progress(str(kept[row]))
    return _document(rows, kept)


def wanted(quick: bool) -> list[Wanted]:
    """Every row, those of a worker's own engine first."""
    pairs = [pair for pair in PAIRS if "vllm" not in pair or vllm_installed()][: 1 if quick else None]
    rows = []
    for pair in pairs:
        name = " to ".join(pair)
        cheats = [kind for kind in CHEATS if pair[0] == "transformers" or not kind.inside][: 1 if quick else None]
        rows += [Wanted("law", name)]
        rows += [Wanted("attacks", name, kind.name, rate) for rate in AUDITS for kind in cheats]
        rows += [Wanted("watchers", name, kind.name) for kind in cheats]
        rows += [Wanted("lives", name)]
        rows += [] if quick else [Wanted("drift", name, kind.name) for kind in DRIFT]
    return sorted(rows, key=lambda row: row.audit, reverse=True) if not quick else rows


def _key(line: Row) -> Wanted:
    return Wanted(*(line[name] for name in Wanted._fields))


def _kinds(row: Wanted) -> list[Kind]:
    """Whose files a row needs."""
    named = [kind for kind in (*CHEATS, *DRIFT) if kind.name == row.name]
    return [HONEST[0], *(HONEST[1:] if row.table in ("lives", "watchers") else ()), *named]


def _made(row: Wanted, making: Making, progress: Progress) -> Row:
    rng = np.random.default_rng(0)
    if row.table == "law":
        return making.law(row.engines, row.audit)[1]
    if row.table == "lives":
        return _lives(row.engines, making, rng, progress)
    kind = next(kind for kind in (*CHEATS, *DRIFT) if kind.name == row.name)
    table = making.table(row.engines, kind, row.audit)
    if row.table == "watchers":
        return _watchers(table, making.table(row.engines, HONEST[1], row.audit), making.quick, rng)
    if row.table == "drift":
        peaks, _ = Lives(table.files(TOGETHER, rng), rng, each=1).run(NODES, 1000)
        return {"lives": NODES, "accused": peaks.accused}
    whole = kind.attack in STEERING and row.audit == AUDIT_EVERYTHING
    gain = {"gain": making.steered(row.engines[0], kind)} if whole else {}
    return _attack(table, rng, row.audit) | gain


def _document(rows: Sequence[Wanted], kept: dict[Wanted, Row]) -> Row:
    """The result from the rows that there are, in their order."""
    tables: dict[str, list[Row]] = {name: [] for name in ("law", "attacks", "watchers", "lives", "drift")}
    for row in rows:
        if row in kept:
            tables[row.table].append({name: value for name, value in kept[row].items() if name != "table"})
    lives = tables["lives"]
    return {
        "attacks": tables["attacks"],
        "watchers": tables["watchers"],
        "lives": sum(one["lives"] for one in lives),
        "accused": sum(one["accused"] for one in lives),
        "life_runs": lives,
        "drift": tables["drift"],
        "pairs": {one["pair"]: one for one in tables["law"]},
        "left": sum(row not in kept for row in rows),
    }


def _law(pair: tuple[str, str], home: Path, quick: bool, rate: int) -> tuple[PairLaw, Row]:
    drawn = list(audited(figures(*pair, HONEST[0], home, quick), rate, draws=1))
    pilot = [block for number, file in enumerate(drawn) if number % PILOT == 0 for block in file]
    rest = [block for number, file in enumerate(drawn) if number % PILOT for block in file]
    law = pair_law(*pair, [_measured(rest)], _measured(pilot), SAFETY, len(PAIRS))
    own = _measured(rest)
    sums = [*np.array(own.problems).sum(axis=0), *np.array(own.blocks).sum(axis=0)]
    rates = {name: float(f"{s / n:.4g}") if n else 0.0 for name, (s, n) in zip(law.bets, sums, strict=True)}
    bets = {name: [list(vars(bet).values()) for bet in made] for name, made in law.bets.items()}
    return law, {"files": len(drawn), "problems": len(own.problems), "honest_rates": rates, "bets": bets}


def _measured(blocks: Sequence[ProblemBlock]) -> HonestSums:
    problems = [as_problem(problem) for block in blocks for problem in block.problems]
    return HonestSums(problems, [as_block(block.together) for block in blocks])


def audited(files: Iterable[list[MeasuredRow]], rate: int, draws: int) -> Iterator[list[ProblemBlock]]:
    """A file's blocks of problems by the rows that audits at a rate draw, `draws` times for each file; empty sums of
    problems of which none is drawn, so that files have equally many."""
    for number, rows in enumerate(files):
        for draw in range(draws):
            sample = set(audit_sample(tagged_hash("muster/benchmark-evidence-audit/1", draw), number, len(rows), rate))
            each = PROBLEMS * SAMPLES
            yield [
                _block([row for row in rows[at : at + each] if row.figures.row in sample], at // SAMPLES)
                for at in range(0, len(rows), each)
            ]


def _block(rows: Sequence[MeasuredRow], first: int) -> ProblemBlock:
    problems = [[row for row in rows if row.figures.row // SAMPLES == first + place] for place in range(PROBLEMS)]
    drifts = [Drift(*np.sum([row.drift for row in own], axis=0)) for own in problems if own]
    (together,) = block_sums([coherence(drifts)])
    return ProblemBlock([problem_sums([row.figures for row in own]) for own in problems], together)


def _attack(table: Table, rng: np.random.Generator, rate: int) -> Row:
    most = MOST_FILES * AUDIT_EVERYTHING // rate
    _, found = Lives(table, rng).run(NODES, most)
    waiting = sorted(count or most + 1 for count in found.at.tolist())
    caught = int((found.at > 0).sum())
    return {
        "nodes": NODES,
        "found": caught,
        "files_median": statistics.median(waiting),
        "files_p99": waiting[-max(1, NODES // 100) - 1],
        "by": NAMES[int(np.argmax(found.by))] if caught else "",
    }


def _watchers(cheat: Table, honest: Table, quick: bool, rng: np.random.Generator) -> Row:
    files, nodes = (30, 3) if quick else (1000, 20)
    tables = cheat.files(TOGETHER, rng), honest.files(TOGETHER, rng)
    runs = []
    for margin in MARGINS:
        found = watch(*tables, margin, files, nodes, rng)
        mean = round(statistics.fmean(found.cheated), 1)
        runs.append({"margin": margin, "mean": mean, "most": max(found.cheated), "accused": found.accused})
    return {"files": files, "nodes": nodes, "bound": round(bound(*tables, files), 1), "runs": runs}


def _lives(pair: tuple[str, str], making: Making, rng: np.random.Generator, progress: Progress) -> Row:
    """Honest lives: of fresh measured problems, and at the edges of the envelope, where bets pay 1 on average."""
    lives, files = (20, 50) if making.quick else (2000, 1000)
    law, _ = making.law(pair, AUDIT_EVERYTHING)
    table = making.table(pair, HONEST[1], AUDIT_EVERYTHING)
    peaks, _ = Lives(table.files(TOGETHER, rng), rng, each=1).run(lives, files)
    progress(f"{lives} honest lives of {files} files: {peaks.accused} accused, largest e^{peaks.largest:.1f}")
    total, accused, largest = lives, peaks.accused, peaks.largest
    single = Table.of(
        law, [ProblemBlock([one], NOTHING) for block in making.blocks(pair, HONEST[1]) for one in block.problems]
    )
    for name, weights, rows, each in (
        *((name, weights, single, IN_FILE) for name, weights in edges(single, law, ACCUMULATORS).items()),
        *((name, weights, table, BLOCKS) for name, weights in edges(table, law, BLOCK_ACCUMULATORS).items()),
    ):
        peaks, _ = Lives(rows.files(TOGETHER, rng, weights, each), rng, each=1).run(lives // 10, files)
        progress(f"{lives // 10} lives at the edge of {name}: {peaks.accused} accused, largest e^{peaks.largest:.1f}")
        accused, total, largest = accused + peaks.accused, total + lives // 10, max(largest, peaks.largest)
    return {"lives": total, "accused": accused, "files": files, "largest": float(f"{largest:.3g}")}
