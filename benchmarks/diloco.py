"""`python -m benchmarks diloco`: what training by sites that synchronise seldom costs in loss, and spares in bytes.

Four sites train a Llama of 5.3 million parameters on docstrings of pinned packages, byte by byte
(benchmarks/diloco_text.py): by data parallelism, with an outer step every 10, 50 and 100 inner steps in float32, and
every 100 in int8 (both codebooks) and sparse; three seeds, equal tokens, one checkpoint to begin from. The sites are
simulated one after the other; their contributions are real (benchmarks/diloco_sites.py). In slices: `--seconds S` ends
after so long, `--resume` goes on, also after a kill, with the same bits.

`loss_gap`: held-out loss over data parallelism's, less 1, after equal tokens, the worst seed; `int8_gap`: over
float32's at the same H, the worst of seeds and codebooks, either way. `bytes_ratio`: bytes of float32 data parallelism
to those that a site sends and receives where all fetch all, as sites do; `bytes_ratio_reducing`: where each would
reduce a shard. `utilisation`: simulated with INTELLECT-1's lines
(benchmarks/diloco_links.py). Null is what is not measured yet.
"""

import shutil
import statistics
import time
from collections.abc import Callable, Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any

from benchmarks.diloco_links import PUBLISHED, simulated
from benchmarks.diloco_text import PackageText, package_text
from protocol.errors import IntegrityError
from protocol.sites.config import SitesConfig
from protocol.sites.traffic import all_reduce
from trainer.state.records import read_records, write_records

FOLDER = Path(__file__).parent.parent / "build" / "diloco"
JOURNAL, WARMUP = "journal.jsonl", "warmup"
SEEDS: tuple[int, ...] = (1, 2, 3)
KEEP_SECONDS = 60.0
NORMAL_BYTES = 0.935
"""Per element in int8, of a normal distribution."""
Journals = Mapping[tuple[int, str], list[dict[str, Any]]]


def plans(inner_steps: tuple[int, int, int]) -> dict[str, SitesConfig | None]:
    """By name; the first is what the others are held against. `h100` is the last H whatever its length."""
    from benchmarks.diloco_training import sites_config

    short, middle, long = inner_steps
    return {
        "dp": None,
        "h100": sites_config(long),
        "h100-int8": sites_config(long, "int8"),
        "h50": sites_config(middle),
        "h10": sites_config(short),
        "h100-int8-quantile": sites_config(long, "int8", "quantile"),
        "h100-sparse": sites_config(long, "sparse"),
    }


def run(
    quick: bool, progress: Callable[[str], None], resume: bool = False, seconds: int | None = None
) -> dict[str, Any]:
    """See the module. `seconds`: after which no further turn is begun. Quick: one seed, and a model, batches and
    numbers of steps too small to say anything of the loss."""
    from benchmarks.diloco_training import Scale

    end = time.monotonic() + (seconds or float("inf"))
    scale, inner_steps, seeds = Scale(), (10, 50, 100), SEEDS
    if quick:
        scale, inner_steps, seeds = Scale(128, 2, 256, 1, 32, 10, 30, 10, 32), (1, 5, 10), (1,)
    folder = FOLDER / ("quick" if quick else "full")
    if not resume:
        shutil.rmtree(folder, ignore_errors=True)
    text = package_text(FOLDER)
    journals = {}
    for seed in seeds:
        for name, sites in plans(inner_steps).items():
            lines = recorded(folder / str(seed), name, sites, scale, text, end)
            journals[seed, name] = lines
            progress(
                f"seed {seed} {name}: step {lines[-1]['step'] if lines else 0} of {scale.last}, {_last_loss(lines)}"
            )
    return {
        **summary(journals, scale.last, inner_steps),
        "text": {"source": text.source, "documents": len(text.documents), "sha256": text.digest},
    }


def recorded(
    folder: Path, name: str, sites: SitesConfig | None, scale: Any, text: PackageText, end: float
) -> list[dict[str, Any]]:
    """The journal of the run `name` of a seed, after a slice that ends with the run or at `end`."""
    if not _advanced(folder / WARMUP, None, scale, text, end, scale.warmup):
        return []
    _advanced(folder / name, sites, scale, text, end, scale.last)
    return read_records(folder / name / JOURNAL)


def _advanced(folder: Path, sites: SitesConfig | None, scale: Any, text: PackageText, end: float, last: int) -> bool:
    """Whether the run stands at its end. A turn that is taken once more must come out as it did."""
    lines = read_records(folder / JOURNAL)
    if lines and lines[-1]["step"] >= last:
        return True
    if time.monotonic() >= end:
        return False
    made = _begun(folder, sites, scale, text)
    kept, known = time.monotonic(), {line["step"]: line["digest"] for line in lines}
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
        if time.monotonic() - kept > KEEP_SECONDS:
            made.keep()
            kept = time.monotonic()
    if made.step < last or folder.name == WARMUP:
        made.keep()
    else:
        made.forget()
    return bool(made.step >= last)


def _begun(folder: Path, sites: SitesConfig | None, scale: Any, text: PackageText) -> Any:
    from benchmarks.diloco_sites import SITES
    from benchmarks.diloco_text import SiteStreams
    from benchmarks.diloco_training import CHECKPOINT, DilocoPlan, DilocoRun

    folder.mkdir(parents=True, exist_ok=True)
    seed = int(folder.parent.name)
    made = DilocoRun(folder, DilocoPlan(seed, sites), scale, SiteStreams(text, SITES, seed, scale.length))
    if not made.resume() and folder.name != WARMUP:
        made.begin_from(folder.parent / WARMUP / CHECKPOINT)
    return made


def summary(journals: Journals, last: int, inner_steps: tuple[int, int, int]) -> dict[str, Any]:
    """Of all journals, by seed and name; null where a run that is needed has not come to its end."""
    seeds = sorted({seed for seed, _ in journals})
    losses = {key: lines[-1]["loss"] for key, lines in journals.items() if lines and lines[-1]["step"] == last}

    def gaps(name: str, against: str) -> dict[str, float]:
        whole = [seed for seed in seeds if (seed, name) in losses and (seed, against) in losses]
        return {str(seed): round(losses[seed, name] / losses[seed, against] - 1, 5) for seed in whole}

    of_h = {"10": gaps("h10", "dp"), "50": gaps("h50", "dp"), "100": gaps("h100", "dp")}
    int8 = [gap for name in ("h100-int8", "h100-int8-quantile") for gap in gaps(name, "h100").values()]
    return {
        "loss_gap": {name: max(found.values(), default=None) for name, found in of_h.items()},
        "int8_gap": max(map(abs, int8), default=None),
        "bytes_ratio": {
            "int8": _ratio(journals, "h100-int8", all_fetched),
            "sparse": _ratio(journals, "h100-sparse", all_fetched),
        },
        "faults": None,
        "steps_lost": None,
        "steps_twice": None,
        "recovery_s": None,
        "utilisation": {
            "ours": simulated(_bytes_each(journals) or NORMAL_BYTES),
            "peer": {"INTELLECT-1, published": PUBLISHED, "torchft": None},
        },
        "bytes_ratio_reducing": {
            "int8": _ratio(journals, "h100-int8", reduced),
            "sparse": _ratio(journals, "h100-sparse", reduced),
        },
        "inner_steps": inner_steps,
        "gaps_by_seed": of_h
        | {name: gaps(name, "h100") for name in ("h100-int8", "h100-int8-quantile", "h100-sparse")},
        "runs": {f"{seed} {name}": _told(lines) for (seed, name), lines in journals.items()},
    }


def _ratio(journals: Journals, name: str, counted: Callable[[dict[str, Any]], Fraction]) -> float | None:
    """Of all outer steps that were made under that name."""
    outer = [line["outer"] for (_, other), lines in journals.items() if other == name for line in lines]
    if not outer:
        return None
    return round(float(statistics.fmean(float(_parallel(one) / counted(one)) for one in outer)), 1)


def _bytes_each(journals: Journals) -> float | None:
    """Of the payload in int8, per element."""
    outer = [line["outer"] for (_, name), lines in journals.items() if name == "h100-int8" for line in lines]
    if not outer:
        return None
    return statistics.fmean(sum(one["payload"].values()) / len(one["payload"]) / one["size"] for one in outer)


def _parallel(outer: dict[str, Any]) -> Fraction:
    """Bytes per site of as many inner steps of data parallelism in float32, by a ring."""
    size, inner_steps = int(outer["size"]), int(outer["inner_steps"])
    return inner_steps * all_reduce(size, len(outer["payload"]), Fraction(4)).total


def all_fetched(outer: dict[str, Any]) -> Fraction:
    """Sent and received by the mean site, where each publishes its contribution and fetches all others'."""
    return Fraction(sum(outer["payload"].values()) + sum(outer["document"].values()))


def reduced(outer: dict[str, Any]) -> Fraction:
    """Sent and received by the mean site, where each publishes its contribution, fetches one shard of all others',
    publishes that shard's mean, and fetches the other means."""
    sites = len(outer["payload"])
    payload, document = Fraction(sum(outer["payload"].values())), Fraction(sum(outer["document"].values()))
    means = Fraction(sum(outer["means"]))
    return (payload + document + means) / sites + Fraction(sites - 1, sites) * (payload / sites + document + means)


def _told(lines: list[dict[str, Any]]) -> dict[str, Any]:
    outer = [line["outer"] for line in lines if "outer" in line]
    found = {
        "step": lines[-1]["step"] if lines else 0,
        "losses": {line["step"]: round(line["loss"], 5) for line in lines if "loss" in line},
        "cpu_s": round(sum(line["cpu"] for line in lines)),
    }
    if outer:
        found["excluded"] = sum(len(one["excluded"]) for one in outer)
        found["elements_sent"] = round(statistics.fmean(one["sent"] for one in outer), 4)
    return found


def _last_loss(lines: list[dict[str, Any]]) -> str:
    found = [line["loss"] for line in lines if "loss" in line]
    return f"loss {found[-1]:.4f}" if found else "no loss yet"
