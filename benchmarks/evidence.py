"""Evidence per node: after how many files of 128 rollouts a bf16 cheat is found, and whether honest lives ever are.

`python -m benchmarks evidence [--resume] [--only TEXT]`. Files of each worker engine (vLLM, transformers) are measured
by the other engine, those of transformers by transformers too. What was made is kept in build/evidence, and a later run
makes and measures what is missing (`--only vllm` or `--only transformers`: of that worker alone; the result of a part
is not kept). The law is a calibration's (half of the false accusations 1e-6 for its error, safety factor 1.1). A
cheat's 100 nodes and the honest lives are drawn anew by problems, which are independent, from the measured files. Keys:
attacks [{name, pair, audit, files_median, files_p99, found, by}], lives, accused, drift (honest work after training
that the law was not measured on), pairs {pair: files, problems, mean rates and bets}. At audit rates below 1 (`audit`,
of 65536) the same files count by the rows that such audits draw, honest ones for the law too; a node may hand in as
many more files as there are fewer rows. Lives and drift are of rate 1.
"""

import multiprocessing
import statistics
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.evidence_files import CHEATS, DRIFT, HONEST, Kind, figures, measured, produce, train
from benchmarks.evidence_lives import NODES, Lives, Table, edges
from benchmarks.offline_pool import FULL_WORK
from calibration.envelope import Problem, as_problem, pair_law
from engines.runtime import vllm_installed
from protocol.audit import AUDIT_EVERYTHING, audit_sample
from protocol.encoding import tagged_hash
from protocol.evidence.figures import RowFigures
from protocol.evidence.law import PairLaw
from protocol.evidence.process import NAMES
from protocol.evidence.sums import Sum, file_sums, problem_sums

HOME = Path(__file__).parent.parent / "build" / "evidence"
PAIRS = (("vllm", "transformers"), ("transformers", "vllm"), ("transformers", "transformers"))
SAFETY = 1.1
MOST_FILES = 16
AUDITS = (AUDIT_EVERYTHING, AUDIT_EVERYTHING // 4, AUDIT_EVERYTHING // 16, AUDIT_EVERYTHING // 64)
TOGETHER = 4096
"""Files that honest lives are drawn from."""
PILOT = 4
"""One calibration file of four chooses the bets, the others their rates."""
SAMPLES = FULL_WORK.samples_per_problem
Progress = Callable[[str], None]


def run(quick: bool, progress: Progress, resume: bool = False, only: str = "") -> dict[str, Any]:
    """`resume` is always so: what was measured stays measured."""
    del resume
    home = HOME.with_name("evidence-quick") if quick else HOME
    pairs = [pair for pair in PAIRS if "vllm" not in pair or vllm_installed()] or [("transformers", "transformers")]
    if quick:
        pairs = [("transformers", "transformers")]
    pairs = [pair for pair in pairs if only in pair[0]]
    kinds = (*HONEST, *CHEATS[:1]) if quick else (*HONEST, *CHEATS, *DRIFT)
    make(pairs, kinds, home, quick, progress)
    rng = np.random.default_rng(0)
    out: dict[str, Any] = {"attacks": [], "lives": 0, "accused": 0, "drift": [], "pairs": {}}
    for pair in pairs:
        name = " to ".join(pair)
        for rate in AUDITS:
            rare, _ = _law(pair, home, quick, rate)
            for kind in [kind for kind in kinds if kind in CHEATS]:
                out["attacks"].append(_attack(kind, name, _table(rare, pair, kind, home, quick, rate), rng, rate))
                progress(str(out["attacks"][-1]))
        law, about = _law(pair, home, quick)
        out["pairs"][name] = about
        lives, accused = _lives(law, pair, home, quick, rng, progress)
        out["lives"] += lives
        out["accused"] += accused
        for kind in [kind for kind in kinds if kind in DRIFT]:
            moved = _table(law, pair, kind, home, quick).files(TOGETHER, rng)
            peaks, _ = Lives(moved, rng, each=1).run(NODES, 1000)
            out["drift"].append({"name": kind.name, "pair": name, "lives": NODES, "accused": peaks.accused})
            progress(str(out["drift"][-1]))
    return out


def make(pairs: Sequence[tuple[str, str]], kinds: Sequence[Kind], home: Path, quick: bool, progress: Progress) -> None:
    """Every engine in a process of its own: vLLM keeps global state."""
    home.mkdir(parents=True, exist_ok=True)

    def apart(what: str, function: Callable[..., object], *arguments: object) -> None:
        with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as process:
            progress(f"{what}: {process.submit(function, *arguments).result()}")

    apart("policy steps", train, kinds, home)
    for worker, verifier in pairs:
        for kind in kinds:
            apart(f"{worker} made {kind.name}", produce, worker, [kind], home, quick)
        apart(f"{verifier} measured files of {worker}", measured, worker, verifier, kinds, home, quick)


def _law(
    pair: tuple[str, str], home: Path, quick: bool, rate: int = AUDIT_EVERYTHING
) -> tuple[PairLaw, dict[str, Any]]:
    drawn = audited(figures(*pair, HONEST[0], home, quick), rate, draws=1)
    files = [[as_problem(one) for one in problems] for problems in drawn]
    pilot: list[Problem] = [one for number, file in enumerate(files) if number % PILOT == 0 for one in file]
    rest: list[Problem] = [one for number, file in enumerate(files) if number % PILOT for one in file]
    law = pair_law(*pair, [rest], pilot, SAFETY, len(PAIRS))
    sums = np.array(rest).sum(axis=0)
    rates = {name: float(f"{s / n:.4g}") if n else 0.0 for name, (s, n) in zip(law.bets, sums, strict=True)}
    bets = {name: [list(vars(bet).values()) for bet in own] for name, own in law.bets.items()}
    return law, {"files": len(files), "problems": len(rest), "honest_rates": rates, "bets": bets}


def _table(
    law: PairLaw, pair: tuple[str, str], kind: Kind, home: Path, quick: bool, rate: int = AUDIT_EVERYTHING
) -> Table:
    """What every problem of a kind's files pays; each file audited as often as the rate leaves rows out."""
    drawn = audited(figures(*pair, kind, home, quick), rate, draws=AUDIT_EVERYTHING // rate)
    return Table.of(law, [one for problems in drawn for one in problems])


def audited(files: Iterable[list[RowFigures]], rate: int, draws: int) -> Iterator[list[dict[str, Sum]]]:
    """The sums of a file's problems over the rows that audits at a rate draw, `draws` times for each file; empty sums
    of problems of which none is drawn, so that files have equally many."""
    nothing = problem_sums(())
    for number, rows in enumerate(files):
        for draw in range(draws):
            sample = set(audit_sample(tagged_hash("muster/benchmark-evidence-audit/1", draw), number, len(rows), rate))
            sums = file_sums([row for row in rows if row.row in sample], SAMPLES)
            yield sums + [nothing] * (len(rows) // SAMPLES - len(sums))


def _attack(
    kind: Kind, pair: str, table: Table, rng: np.random.Generator, rate: int = AUDIT_EVERYTHING
) -> dict[str, Any]:
    most = MOST_FILES * AUDIT_EVERYTHING // rate
    _, found = Lives(table, rng).run(NODES, most)
    files = sorted(found.at.tolist())
    caught = [count for count in files if count]
    waiting = [count or most + 1 for count in files]
    return {
        "name": kind.name,
        "pair": pair,
        "audit": rate,
        "nodes": NODES,
        "found": len(caught),
        "files_median": statistics.median(sorted(waiting)),
        "files_p99": sorted(waiting)[-max(1, NODES // 100) - 1],
        "by": NAMES[int(np.argmax(found.by))] if caught else "",
    }


def _lives(
    law: PairLaw, pair: tuple[str, str], home: Path, quick: bool, rng: np.random.Generator, progress: Progress
) -> tuple[int, int]:
    """Honest lives: of fresh measured problems, and at the edges of the envelope, where bets pay 1 on average."""
    lives, files = (20, 50) if quick else (2000, 1000)
    table = _table(law, pair, HONEST[1], home, quick)
    peaks, _ = Lives(table.files(TOGETHER, rng), rng, each=1).run(lives, files)
    progress(f"{lives} honest lives of {files} files: {peaks.accused} accused, largest e^{peaks.largest:.1f}")
    total, accused = lives, peaks.accused
    for name, weights in edges(table, law).items():
        peaks, _ = Lives(table.files(TOGETHER, rng, weights), rng, each=1).run(lives // 10, files)
        progress(f"{lives // 10} lives at the edge of {name}: {peaks.accused} accused, largest e^{peaks.largest:.1f}")
        accused += peaks.accused
        total += lives // 10
    return total, accused
