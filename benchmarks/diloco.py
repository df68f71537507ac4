"""`python -m benchmarks diloco`: what training by sites that synchronise seldom costs in loss, and spares in bytes.

Four sites train a Llama of 5.3 million parameters on docstrings of pinned packages, byte by byte
(benchmarks/diloco_text.py): by data parallelism, with an outer step every 10, 50 and 100 inner steps in float32, and
every 100 in int8 (both codebooks) and sparse; three seeds, equal tokens, one checkpoint to begin from. `alone` is one
site on its own data, with a quarter of the tokens: what the outer steps are good for. The sites are simulated one after
the other; their contributions are real (benchmarks/diloco_sites.py). In slices: `--seconds S` ends after so long,
`--resume` goes on, also after a kill, with the same bits. A run that has come to its end is a line of
results/diloco_runs.jsonl at once, which `--resume` takes from there on any machine. Each slice ends with picture and
table of what there is (benchmarks/diloco_plots.py).

`loss_gap`: held-out loss over data parallelism's, less 1, after equal tokens, the worst seed; `int8_gap`: over
float32's at the same H, the worst of seeds and codebooks, either way. `bytes_ratio`: bytes of float32 data parallelism
to those that a site sends and receives where each reduces a shard, checks of others' included (`exchange` `shards`);
`bytes_ratio_all`: where all fetch all. `utilisation`: simulated with INTELLECT-1's lines
(benchmarks/diloco_links.py). Null is what is not measured yet.
"""

import json
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

from benchmarks.diloco_links import PUBLISHED, simulated
from benchmarks.diloco_runs import KEPT_RUNS, Runs, keep, kept, measured
from benchmarks.diloco_text import PackageText, package_text
from protocol.encoding import sha256_hex
from protocol.errors import IntegrityError
from protocol.sites.run import SitesRun
from protocol.sites.traffic import all_reduce
from trainer.records import read_records, write_records

FOLDER = Path(__file__).parent.parent / "build" / "diloco"
JOURNAL, WARMUP = "journal.jsonl", "warmup"
PEER_RESULT = Path(__file__).parent / "results" / "diloco_peer.json"
FAULTS_RESULT = PEER_RESULT.with_name("site_faults.json")
SEEDS: tuple[int, ...] = (1, 2, 3)
SITES = 4
KEEP_SECONDS = 60.0
NORMAL_BYTES = 0.935
"""Per element in int8, of a normal distribution."""


def plans(seeds: Sequence[int], inner_steps: tuple[int, int, int]) -> dict[tuple[int, str], Any]:
    """DilocoPlan by seed and name, in the order in which they are made: first what says most. The others are held
    against `dp`. `h100` is the last H whatever its length."""
    from benchmarks.diloco_training import DilocoPlan, sites_config

    short, middle, long = inner_steps
    losses: dict[str, dict[str, Any]] = {
        "dp": {},
        "h100": {"sites": sites_config(long)},
        "h100-int8": {"sites": sites_config(long, "int8")},
        "h50": {"sites": sites_config(middle)},
        "h10": {"sites": sites_config(short)},
    }
    more: dict[str, dict[str, Any]] = {
        "alone": {"streams": 1},
        "h100-sparse": {"sites": sites_config(long, "sparse")},
        "h100-int8-quantile": {"sites": sites_config(long, "int8", "quantile")},
    }
    return {
        (seed, name): DilocoPlan(seed, **chosen)
        for group in (losses, more)
        for seed in seeds
        for name, chosen in group.items()
    }


def run(
    quick: bool, progress: Callable[[str], None], resume: bool = False, seconds: int | None = None
) -> dict[str, Any]:
    """See the module. `seconds`: after which no further turn is begun. Quick: one seed, and a model, batches and
    numbers of steps too small to say anything of the loss."""
    from benchmarks import diloco_plots
    from benchmarks.diloco_training import Scale

    end = time.monotonic() + (seconds or float("inf"))
    scale, inner_steps, seeds = Scale(), (10, 50, 100), SEEDS
    if quick:
        scale, inner_steps, seeds = Scale(128, 2, 256, 1, 32, 10, 30, 10, 32, rising=10), (1, 5, 10), (1,)
    folder = FOLDER / ("quick" if quick else "full")
    finished = folder / "runs.jsonl" if quick else KEPT_RUNS
    if not resume:
        shutil.rmtree(folder, ignore_errors=True)
        finished.unlink(missing_ok=True)
    text = package_text(FOLDER)
    wanted = plans(seeds, inner_steps)
    digests = {key: _plan_digest(plan, scale, text) for key, plan in wanted.items()}
    runs = kept(finished, digests)
    for (seed, name), plan in wanted.items():
        if (seed, name) not in runs:
            runs[seed, name] = measured(recorded(folder / str(seed), name, plan, scale, text, end))
            if runs[seed, name]["step"] >= scale.last:
                keep(finished, seed, name, digests[seed, name], runs[seed, name])
        made = runs[seed, name]
        loss = f"loss {made['losses'][-1][1]:.4f}" if made["losses"] else "no loss yet"
        progress(f"seed {seed} {name}: step {made['step']} of {scale.last}, {loss}")
    if not quick:
        diloco_plots.write({key: run for key, run in runs.items() if run["step"]}, scale.last)
    return {
        **summary(runs, scale.last, inner_steps),
        "text": {"source": text.source, "documents": len(text.documents), "sha256": text.digest},
    }


def _plan_digest(plan: Any, scale: Any, text: PackageText) -> str:
    """Of what a run is made of, besides machine and packages."""
    return sha256_hex(f"{plan.digest(scale)} {text.digest}".encode())


def recorded(folder: Path, name: str, plan: Any, scale: Any, text: PackageText, end: float) -> list[dict[str, Any]]:
    """The journal of the run `name` of a seed, after a slice that ends with the run or at `end`."""
    if not advanced(folder / WARMUP, replace(plan, sites=None, streams=None), scale, text, end, scale.warmup):
        return []
    advanced(folder / name, plan, scale, text, end, scale.last)
    return read_records(folder / name / JOURNAL)


def advanced(folder: Path, plan: Any, scale: Any, text: PackageText, end: float, last: int) -> bool:
    """Whether the run stands at step `last`. A turn that is taken once more must come out as it did."""
    lines = read_records(folder / JOURNAL)
    if lines and lines[-1]["step"] >= last:
        return True
    if time.monotonic() >= end:
        return False
    made = _begun(folder, plan, scale, text)
    written, known = time.monotonic(), {line["step"]: line["digest"] for line in lines}
    while made.step < last and time.monotonic() < end:
        line = made.advance()
        if line is not None and line["step"] not in known:
            lines.append(line)
            write_records(folder / JOURNAL, lines)
        elif line is not None and known[line["step"]] != line["digest"]:
            raise IntegrityError(
                f"{folder.name}: step {line['step']} came out otherwise than before",
                "go on with the machine and the packages that it was begun with, or remove the folder",
            )
        if time.monotonic() - written > KEEP_SECONDS:
            made.keep()
            written = time.monotonic()
    if made.step < last or folder.name == WARMUP:
        made.keep()
    else:
        made.forget()
    return bool(made.step >= last)


def _begun(folder: Path, plan: Any, scale: Any, text: PackageText) -> Any:
    from benchmarks.diloco_sites import SITES
    from benchmarks.diloco_text import SiteStreams
    from benchmarks.diloco_training import CHECKPOINT, DilocoRun

    folder.mkdir(parents=True, exist_ok=True)
    made = DilocoRun(folder, plan, scale, SiteStreams(text, SITES, plan.seed, scale.length))
    if not made.resume() and folder.name != WARMUP:
        made.begin_from(folder.parent / WARMUP / CHECKPOINT)
    return made


def summary(runs: Runs, last: int, inner_steps: tuple[int, int, int]) -> dict[str, Any]:
    """Of all runs; null where one that is needed has not come to its end."""
    seeds = sorted({seed for seed, _ in runs})
    losses = {key: run["losses"][-1][1] for key, run in runs.items() if run["losses"] and run["step"] == last}

    def gaps(name: str, against: str) -> dict[str, float]:
        whole = [seed for seed in seeds if (seed, name) in losses and (seed, against) in losses]
        return {str(seed): round(losses[seed, name] / losses[seed, against] - 1, 5) for seed in whole}

    of_h = {"10": gaps("h10", "dp"), "50": gaps("h50", "dp"), "100": gaps("h100", "dp")}
    int8 = [gap for name in ("h100-int8", "h100-int8-quantile") for gap in gaps(name, "h100").values()]
    return {
        "loss_gap": {name: max(found.values(), default=None) for name, found in of_h.items()},
        "int8_gap": max(map(abs, int8), default=None),
        "bytes_ratio": {
            "int8": _with_checks(runs, "h100-int8", inner_steps[2]),
            "sparse": _with_checks(runs, "h100-sparse", inner_steps[2]),
        },
        **_faults(),
        "utilisation": {
            "ours": simulated(_mean(runs, "h100-int8", "bytes_each", 6) or NORMAL_BYTES),
            "peer": {"INTELLECT-1, published": PUBLISHED, "torchft": _torchft()},
        },
        "bytes_ratio_all": {
            "int8": _mean(runs, "h100-int8", "ratio", 1),
            "sparse": _mean(runs, "h100-sparse", "ratio", 1),
        },
        "inner_steps": inner_steps,
        "gaps_by_seed": of_h
        | {name: gaps(name, "h100") for name in ("h100-int8", "h100-int8-quantile", "h100-sparse")},
        "runs": {f"{seed} {name}": run for (seed, name), run in runs.items()},
    }


def _with_checks(runs: Runs, name: str, inner_steps: int) -> float | None:
    """Bytes of data parallelism to those of a site that reduces a shard, and computes as many parts of others again as
    runs do by default: what is read for that is not in a run's own figure."""
    reducing, each = _mean(runs, name, "ratio_reducing", 6), _mean(runs, name, "bytes_each", 6)
    if reducing is None or each is None:
        return None
    of_all = float(inner_steps * all_reduce(1, SITES, Fraction(4)).total)
    checks = float(SitesRun.model_fields["checks"].default) * (SITES - 1) / SITES * each
    return round(of_all / (of_all / reducing + checks), 1)


def _faults() -> dict[str, Any]:
    """As `python -m benchmarks site_faults` was kept."""
    kept_faults = json.loads(FAULTS_RESULT.read_bytes()) if FAULTS_RESULT.exists() else {}
    return {name: kept_faults.get(name) for name in ("faults", "steps_lost", "steps_twice", "recovery_s")}


def _torchft() -> dict[str, Any] | None:
    """As `python -m benchmarks diloco_peer` was kept, with ours on the same lines."""
    return json.loads(PEER_RESULT.read_bytes())["utilisation"] if PEER_RESULT.exists() else None


def _mean(runs: Runs, name: str, figure: str, digits: int) -> float | None:
    """Of a figure over all outer steps that were made under that name."""
    found = [(run[figure], run["outer_steps"]) for (_, other), run in runs.items() if other == name and figure in run]
    if not found:
        return None
    mean = sum(value * count for value, count in found) / sum(count for _, count in found)
    return round(float(mean), digits)
