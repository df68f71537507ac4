"""What single tokens and chunks show of a cheat, in the terms of the field: AUC against tokens, and fixed thresholds.

`python -m benchmarks margins [--quick]`. Files of 128 rollouts of the demo's model in bf16, made and measured by the
transformers engine in batches of 64 and of 16. Three scores of a batch of tokens: the margin (best score less the
chosen token's, at most 5), as Token-DiFR takes it (Karvonen et al., 2025); |claimed − own ln p|; and the mean
difference of mantissas of the TOPLOC proofs. AUC is the probability that a batch of a cheat scores higher than an
honest one, of batches drawn by rows from the measured files. Beside them the share of chunks beyond TOPLOC's own
thresholds for bf16 (more than 38 of 128 exponents or a mean mantissa difference above 10; Ong et al., 2025), and what
the files of a node add up to by the law that `benchmarks evidence` has learned. What was measured stays in
build/margins.

Keys: kinds {name: {tokens, chunks, misses: share of tokens, beyond: chunks beyond TOPLOC's thresholds}}; auc [{name,
score, at: {tokens: AUC}}]; lives [{name, pair, audit, nodes, found, files_median, files_p99, by}].
"""

import json
import statistics
from collections.abc import Callable, Sequence
from dataclasses import astuple
from pathlib import Path
from typing import Any

import numpy as np

from attacks.registry import REGISTRY
from benchmarks.evidence_files import train, weights, work_for
from benchmarks.evidence_lives import NODES, NOTHING, PROBLEMS, Lives, ProblemBlock, Table
from benchmarks.evidence_settings import DEMO, Kind
from benchmarks.offline_pool import BFLOAT16, FULL_WORK
from calibration.process import BatchProducer, context_of
from engines.hf import TransformersEngine
from environments.pool import PoolEnvironments
from protocol.evidence.figures import RowFigures
from protocol.evidence.law import Bet, PairLaw
from protocol.evidence.process import NAMES
from protocol.evidence.sums import file_sums
from protocol.seeds import AUDIT_EVERYTHING
from validator.measurements import measure
from validator.row_figures import row_figures
from worker.produce import Producer

HOME = Path(__file__).parent.parent / "build" / "margins"
EVIDENCE = Path(__file__).parent / "results" / "evidence.json"
PAIR = "transformers to transformers"
HONEST = (Kind("honest"), Kind("honest, other files"))
CHEATS = (
    Kind("weights-int8", "weights-int8"),
    Kind("weights-noise=0.001", "weights-noise", 0.001),
    Kind("weights-stale=1 lr=1e-05", rate=1e-5, behind=1),
    Kind("weights-stale=4 lr=1e-05", rate=1e-5, behind=4),
    Kind("ghostwriter-int8", "ghostwriter-int8"),
    Kind("temperature=0.98", "temperature", 0.98),
    Kind("greedy", "greedy", 0.0),
)
FILES, QUICK_FILES = 16, 2
MOST_FILES = 64
BATCHES = 2_000
TOKENS = (10, 30, 100, 300, 1_000, 3_000)
MOST_MARGIN = 5.0
TOPLOC_EXPONENTS, TOPLOC_MANTISSA = 38, 10.0
SCORES = ("margin", "logprob", "mantissa")
Numbers = np.ndarray[Any, np.dtype[np.float64]]
Row = dict[str, Any]


def run(quick: bool, progress: Callable[[str], None]) -> dict[str, Any]:
    """See the module. The policy steps of stale kinds are trained first."""
    home = HOME.with_name("margins-quick") if quick else HOME
    kinds = (*HONEST, *(CHEATS[:1] if quick else CHEATS))
    home.mkdir(parents=True, exist_ok=True)
    train(kinds, home)
    rows = {kind.name: measured(kind, home, QUICK_FILES if quick else FILES, progress) for kind in kinds}
    out: dict[str, Any] = {"kinds": {name: about(own) for name, own in rows.items()}, "auc": [], "lives": []}
    scores = {name: scored(own) for name, own in rows.items()}
    rng = np.random.default_rng(0)
    for kind in kinds[1:]:
        for score in SCORES:
            pair = [scores[name][score] for name in (kinds[0].name, kind.name)]
            at = {tokens: auc(*(batches(*one, tokens, rng) for one in pair)) for tokens in TOKENS}
            out["auc"].append({"name": kind.name, "score": score, "at": at})
            progress(str(out["auc"][-1]))
    law = known_law(json.loads(EVIDENCE.read_text()))
    out["lives"] = [life(kind.name, law, rows[kind.name], rng) for kind in kinds]
    return out


def measured(kind: Kind, home: Path, count: int, progress: Callable[[str], None]) -> list[Row]:
    """What `row_of` says of every rollout of a kind's files."""
    out: list[Row] = []
    paths = [home / kind.folder_name / f"{number}.json" for number in range(count)]
    engines = None
    for number, path in enumerate(paths):
        if not path.exists():
            engines = engines or _engines(kind, home)
            path.parent.mkdir(parents=True, exist_ok=True)
            partial = path.with_suffix(".partial")
            partial.write_text(json.dumps(_file(kind, number, *engines)))
            partial.rename(path)
        out += json.loads(path.read_text())
    progress(f"{kind.name}: {len(out)} rollouts")
    return out


def _engines(kind: Kind, home: Path) -> tuple[Producer, TransformersEngine, PoolEnvironments]:
    folder, judged_by = weights(kind, home)
    engine, verifier = TransformersEngine(BFLOAT16, max_batch=64), TransformersEngine(BFLOAT16, max_batch=16)
    build: Callable[..., Producer] = REGISTRY[kind.attack].build if kind.attack else BatchProducer
    producer = build(DEMO.config, engine, kind.strength) if kind.attack else build(DEMO.config, engine)
    if isinstance(producer, BatchProducer):
        producer.batch = 64
    producer.load(folder)
    verifier.load(judged_by)
    return producer, verifier, PoolEnvironments.of(DEMO.config, judged_by)


def _file(
    kind: Kind, number: int, producer: Producer, verifier: TransformersEngine, own: PoolEnvironments
) -> list[Row]:
    work = work_for("margins", kind, number)
    context = context_of(work, producer.make(work).data, DEMO.config, own)
    rows = []
    for one in measure(context, verifier):
        rollout = context.rollouts[one.row]
        errors = [abs(a - b) for a, b in zip(rollout.logprobs, one.logprobs, strict=True)]
        rows.append({"margins": one.gaps, "errors": errors, "mantissas": one.mantissas, "mismatches": one.mismatches})
        rows[-1]["figures"] = astuple(row_figures(rollout, one))
    return rows


def about(rows: Sequence[Row]) -> Row:
    """Counts of a kind, and what TOPLOC's thresholds say of its chunks."""
    margins = [gap for row in rows for gap in row["margins"]]
    chunks = [pair for row in rows for pair in zip(row["mismatches"], row["mantissas"], strict=True)]
    beyond = sum(exponents > TOPLOC_EXPONENTS or mean > TOPLOC_MANTISSA for exponents, mean in chunks)
    misses = sum(gap > 0 for gap in margins) / len(margins)
    return {"tokens": len(margins), "chunks": len(chunks), "misses": float(f"{misses:.3g}"), "beyond": beyond}


def scored(rows: Sequence[Row]) -> dict[str, tuple[Numbers, Numbers, Numbers]]:
    """Of each score (sums, counts, tokens), by rows."""
    tokens = np.array([float(len(row["margins"])) for row in rows])
    chunks = np.array([float(len(row["mantissas"])) for row in rows])
    sums = {
        "margin": [sum(min(gap, MOST_MARGIN) for gap in row["margins"]) for row in rows],
        "logprob": [sum(row["errors"]) for row in rows],
        "mantissa": [sum(row["mantissas"]) for row in rows],
    }
    return {name: (np.array(sums[name]), chunks if name == "mantissa" else tokens, tokens) for name in SCORES}


def batches(sums: Numbers, counts: Numbers, tokens: Numbers, size: int, rng: np.random.Generator) -> Numbers:
    """Mean scores of batches of about `size` tokens, of whole rows drawn with replacement."""
    rows = max(1, round(size / float(tokens.mean())))
    drawn = rng.integers(len(sums), size=(BATCHES, rows))
    means: Numbers = sums[drawn].sum(axis=1) / counts[drawn].sum(axis=1)
    return means


def auc(honest: Numbers, cheat: Numbers) -> float:
    """The probability that a cheat's score is larger; an equal one counts half."""
    ordered = np.sort(honest)
    below, upto = (np.searchsorted(ordered, cheat, side=side) for side in ("left", "right"))
    return float(f"{float((below + upto).mean() / 2 / len(ordered)):.4g}")


def known_law(evidence: dict[str, Any]) -> PairLaw:
    """The law of an earlier run of `benchmarks evidence`, everything audited."""
    bets = {
        name: tuple(Bet(tilt=tilt, rate=rate, most=most) for tilt, rate, most in own)
        for name, own in evidence["pairs"][PAIR]["bets"].items()
    }
    return PairLaw(worker="transformers", verifier="transformers", bets=bets)


def life(name: str, law: PairLaw, rows: Sequence[Row], rng: np.random.Generator) -> Row:
    """After how many files nodes are found that hand in such files, drawn anew by problems."""
    size = FULL_WORK.rows
    figures = [RowFigures(*row["figures"]) for row in rows]
    files = [file_sums(figures[at : at + size], FULL_WORK.samples_per_problem) for at in range(0, len(figures), size)]
    table = Table.of(law, [ProblemBlock([one], NOTHING) for file in files for one in file])
    _, found = Lives(table, rng, each=PROBLEMS).run(NODES, MOST_FILES)
    waits = sorted(int(count) or MOST_FILES + 1 for count in found.at)
    caught = int((found.at > 0).sum())
    return {
        "name": name,
        "pair": PAIR,
        "audit": AUDIT_EVERYTHING,
        "nodes": NODES,
        "found": caught,
        "files_median": statistics.median(waits),
        "files_p99": waits[-max(1, NODES // 100) - 1],
        "by": NAMES[int(np.argmax(found.by))] if caught else "",
    }
