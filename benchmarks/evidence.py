"""Evidence per node: after how many files of 128 rollouts a bf16 cheat is found, and whether honest lives ever are.

`python -m benchmarks evidence [--resume] [--only TEXT] [--seconds S]`. Files of each worker engine (transformers, vLLM)
are measured by the same engine and by the other one. What was made is kept in build/evidence, and every finished row is
a line of results/evidence_runs.jsonl, which `--resume` takes from there on any machine; `--only` makes the rows whose
setting, table, pair and name hold the text, `--seconds` ends after so long. The law is a calibration's (half of the
false accusations 1e-6 for its error, safety factor 1.1). A cheat's 100 nodes and the honest lives are drawn anew by
blocks of eight problems, which are independent, from the measured files. Keys: attacks [{name, pair, audit,
files_median, files_p99, found, by, unexplained: such misses of a file, and of steering what it gained in one}],
watchers [{name, pair, files, bound: files that a node may cheat in, on average, without being accused; runs: by the
margin that it keeps}], lives, accused, life_runs, scaled (honest work whose figures are all larger by the safety
factor), drift (honest work after training that the law was not measured on), pairs {pair: files, tokens of one, mean
rates and bets}, left (rows that are not made yet). At audit rates below 1 (`audit`, of 65536) the same files count by
the rows that such audits draw, honest ones for the law too; a node may hand in as many more files as there are fewer
rows. Lives, scaled and drift are of rate 1. All that is of the demo's model; settings {name: the same} has others
(evidence_settings.py).
"""

import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.evidence_files import STEERING
from benchmarks.evidence_lives import BLOCKS, NODES, NOTHING, Lives, ProblemBlock, Table, edges
from benchmarks.evidence_lives import PROBLEMS as IN_FILE
from benchmarks.evidence_making import Making, means, scaled
from benchmarks.evidence_settings import CHEATS, DEMO, DRIFT, HONEST, MILDER, SETTINGS, EvidenceSetting, Kind
from benchmarks.evidence_watchers import bound, watch
from benchmarks.journal import append, resumed
from engines.runtime import vllm_installed
from protocol.evidence.process import NAMES
from protocol.evidence.sums import ACCUMULATORS, BLOCK_ACCUMULATORS
from protocol.seeds import AUDIT_EVERYTHING

HOME = Path(__file__).parent.parent / "build" / "evidence"
KEPT_RUNS = Path(__file__).parent / "results" / "evidence_runs.jsonl"
KINDS = (*CHEATS, *MILDER, *DRIFT)
MOST_FILES = 16
AUDITS = (AUDIT_EVERYTHING, AUDIT_EVERYTHING // 4, AUDIT_EVERYTHING // 16, AUDIT_EVERYTHING // 64)
MARGINS = (1.0, 4.0, 8.0)
"""Nats that a watching node keeps below the bound."""
TOGETHER = 4096
"""Files that honest lives are drawn from."""
Progress = Callable[[str], None]
Row = dict[str, Any]


class Wanted(NamedTuple):
    """A row of a table of a setting: `law`, `attacks`, `watchers`, `lives`, `scaled`, `drift`."""

    table: str
    pair: str
    name: str = ""
    audit: int = AUDIT_EVERYTHING
    setting: str = DEMO.name

    @property
    def engines(self) -> tuple[str, str]:
        worker, _, verifier = self.pair.partition(" to ")
        return worker, verifier

    @property
    def label(self) -> str:
        return " ".join(filter(None, (self.setting, self.table, self.pair, self.name)))


def run(quick: bool, progress: Progress, resume: bool = False, only: str = "", seconds: int = 0) -> Row:
    """See the module."""
    ends = time.monotonic() + seconds if seconds else float("inf")
    path = HOME.with_name("evidence-quick.jsonl") if quick else KEPT_RUNS
    if not resume:
        path.unlink(missing_ok=True)
    kept = {_key(line): line for line in resumed(path)}
    settings = [DEMO.quick] if quick else SETTINGS
    under = HOME.with_name("evidence-quick") if quick else HOME
    makings = {setting.name: Making(setting, under, progress) for setting in settings}
    rows = [row for setting in settings for row in wanted(setting, quick)]
    missing = [row for row in rows if row not in kept and only in row.label]
    for row in missing:
        if time.monotonic() < ends:
            making = makings[row.setting]
            same = [one for one in missing if (one.pair, one.setting) == (row.pair, row.setting)]
            making.files(row.engines, *(kind for one in same for kind in _kinds(one)))
            kept[row] = row._asdict() | _made(row, making, quick, progress)
            append(path, kept[row])
            progress(str(kept[row]))
    tables = {
        setting.name: _document([row for row in rows if row.setting == setting.name], kept) for setting in settings
    }
    return tables.pop(DEMO.name) | {"settings": tables}


def wanted(setting: EvidenceSetting, quick: bool) -> list[Wanted]:
    """Every row of a setting, those that take longest last."""
    pairs = [pair for pair in setting.pairs if "vllm" not in pair or vllm_installed()][: 1 if quick else None]
    rows = []
    for pair in pairs:
        name = " to ".join(pair)
        able = [kind for kind in setting.cheats if pair[0] == "transformers" or not kind.inside]
        cheats, audits = able[: 1 if quick else None], AUDITS if setting.whole else AUDITS[:1]
        rows += [Wanted("law", name)]
        rows += [Wanted("attacks", name, kind.name, rate) for rate in audits for kind in cheats]
        rows += [Wanted("watchers", name, kind.name) for kind in cheats if setting.whole]
        rows += [Wanted("lives", name)]
        rows += [Wanted("scaled", name)] if setting.scaled else []
        rows += [Wanted("drift", name, kind.name) for kind in DRIFT if setting.whole and not quick]
    rows = [row._replace(setting=setting.name) for row in rows]
    return rows if quick else sorted(rows, key=lambda row: (row.table == "watchers", -row.audit))


def _key(line: Row) -> Wanted:
    return Wanted(**{name: line[name] for name in Wanted._fields if name in line})


def _kinds(row: Wanted) -> list[Kind]:
    """Whose files a row needs."""
    named = [kind for kind in KINDS if kind.name == row.name]
    return [HONEST[0], *(HONEST[1:] if row.table in ("lives", "scaled", "watchers") else ()), *named]


def _made(row: Wanted, making: Making, quick: bool, progress: Progress) -> Row:
    rng = np.random.default_rng(0)
    if row.table == "law":
        return making.law(row.engines, row.audit)[1]
    if row.table == "lives":
        return _lives(row.engines, making, quick, rng, progress)
    if row.table == "scaled":
        return _scaled(row.engines, making, quick, rng)
    kind = next(kind for kind in KINDS if kind.name == row.name)
    blocks = making.blocks(row.engines, kind, row.audit)
    table = Table.of(making.law(row.engines, row.audit)[0], blocks)
    if row.table == "watchers":
        return _watchers(table, making.table(row.engines, HONEST[1], row.audit), quick, rng)
    if row.table == "drift":
        peaks, _ = Lives(table.files(TOGETHER, rng), rng, each=1).run(NODES, 1000)
        return {"lives": NODES, "accused": peaks.accused}
    if row.audit < AUDIT_EVERYTHING:
        return _attack(table, rng, row.audit)
    gain = {"gain": making.steered(row.engines[0], kind)} if kind.attack in STEERING else {}
    return _attack(table, rng, row.audit) | {"unexplained": means(blocks)["unexplained"]} | gain


def _document(rows: Sequence[Wanted], kept: dict[Wanted, Row]) -> Row:
    """The result from the rows that there are, in their order."""
    tables: dict[str, list[Row]] = {name: [] for name in ("law", "attacks", "watchers", "lives", "scaled", "drift")}
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
        "scaled": tables["scaled"],
        "drift": tables["drift"],
        "pairs": {one["pair"]: one for one in tables["law"]},
        "left": sum(row not in kept for row in rows),
    }


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


def _lives(pair: tuple[str, str], making: Making, quick: bool, rng: np.random.Generator, progress: Progress) -> Row:
    """Honest lives: of fresh measured problems, and at the edges of the envelope, where bets pay 1 on average."""
    lives, files = (20, 50) if quick else (2000, 1000)
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


def _scaled(pair: tuple[str, str], making: Making, quick: bool, rng: np.random.Generator) -> Row:
    """Lives of honest work that is worse than what was measured by as much as the safety factor provides for."""
    lives, files = (20, 50) if quick else (200, 1000)
    law, _ = making.law(pair, AUDIT_EVERYTHING)
    table = Table.of(law, scaled(making.blocks(pair, HONEST[1])))
    peaks, _ = Lives(table.files(TOGETHER, rng), rng, each=1).run(lives, files)
    return {"lives": lives, "accused": peaks.accused, "files": files, "largest": float(f"{peaks.largest:.3g}")}
