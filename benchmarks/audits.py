"""What audits of a share of the rows find: every attack at the audit rates that a pool may choose.

`python -m benchmarks audits [--quick] [--resume] [--seconds S] [--count N]`. Files have the demo's size, 128 rollouts.
Each is judged with one row audited, which is the least that there is, and at rates of 1/64, 1/16, 1/4 and 1; whole, as
the attack makes it, and mixed: one row in sixteen the attack's, the others honest; eight such files of each, of which
rates of 1/4 and 1 see one. A finished row is a line of results/audits_runs.jsonl at once (of build/audits-<count>.jsonl
where the count is another), which `--resume` takes from there where it was measured with the same pool; `--seconds`
ends after so long. Attacks on weights, arithmetic and sampling come first: what they are worth hangs on these figures.

Keys: rates (of 65536; 0: one row); attacks [{name, dtype, codes, whole, mixed}], with [refused, files] for each rate;
`codes` are those of whole files that are audited entirely; `mixed` is null where the attack is not one on rows.
`left`: rows that are not measured yet.
"""

import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.attack_rows import Spec, producing, specs
from benchmarks.journal import append, resumed
from benchmarks.offline_pool import BFLOAT16, ENVIRONMENT, FULL_WORK, OfflinePool, Progress
from protocol.encoding import tagged_hash
from protocol.errors import MusterError
from protocol.seeds import AUDIT_EVERYTHING
from protocol.verdict import Code
from trainer.base_model import base_model
from trainer.tiny_model import tiny_model_config
from worker.produce import Produced, Producer

KEPT_RUNS = Path(__file__).parent / "results" / "audits_runs.jsonl"
BUILD = Path(__file__).parent.parent / "build"
FIRST = ("weights-", "compute-", "reroll", "seed", "temperature", "token-swap", "other-lane")
COUNT, QUICK_COUNT, MIXES = 4, 1, 8
CLOSE = {
    ("ghostwriter-int8", "float32"): 400,
    ("greedy", "bfloat16"): 16,
    ("other-lane", "bfloat16"): 16,
}
"""Files of attacks which so few as COUNT do not tell from work that pays (docs/economics.md)."""
AUDITS = (0, AUDIT_EVERYTHING // 64, AUDIT_EVERYTHING // 16, AUDIT_EVERYTHING // 4, AUDIT_EVERYTHING)
"""The first audits no more than the one row that is always drawn."""
CHEATED = 16
"""Of a mixed file, every so many-th row is the attack's."""
Row = dict[str, Any]


def run(quick: bool, progress: Progress, resume: bool = False, seconds: int = 0, count: int = 0) -> dict[str, Any]:
    """See the module. The base model comes from the cache, or is trained first."""
    ends = time.monotonic() + seconds if seconds else float("inf")
    folder = base_model(tiny_model_config(), ENVIRONMENT, 1, progress=progress)
    count, wanted = count or (QUICK_COUNT if quick else COUNT), rows_wanted(quick)
    path = KEPT_RUNS if count == COUNT and not quick else BUILD / f"audits-{count}.jsonl"
    kept = rows_kept(path, resume)
    pools = {dtype: OfflinePool.of(folder, dtype, work=FULL_WORK) for dtype in sorted({one.dtype for one in wanted})}
    counts = {spec: CLOSE.get((spec.name, spec.dtype), count) if count == COUNT else count for spec in wanted}
    keys = {spec: spec.key(pools[spec.dtype], counts[spec]) for spec in wanted}
    for spec in sorted(wanted, key=lambda one: not one.name.startswith(FIRST)):
        if keys[spec] not in kept and time.monotonic() < ends:
            kept[keys[spec]] = measure(pools[spec.dtype], spec, counts[spec])
            append(path, {"key": keys[spec], "row": kept[keys[spec]]})
            progress(f"{spec.dtype} {spec.label}: {kept[keys[spec]]}")
    found = [kept[key] for key in keys.values() if key in kept]
    return {"rates": list(AUDITS), "attacks": found, "left": len(wanted) - len(found)}


def rows_kept(path: Path, resume: bool) -> dict[str, Row]:
    """Finished rows by key; without `resume` none, and the lines are gone."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if not resume:
        path.unlink(missing_ok=True)
    return {line["key"]: line["row"] for line in resumed(path)}


def rows_wanted(quick: bool) -> list[Spec]:
    """Every row of the table of attacks once, in files of the demo's size."""
    every = [replace(one, full=True) for one in specs(quick) if one.table != "fractions"]
    chosen = [one for one in dict.fromkeys(every) if not quick or one.dtype == BFLOAT16]
    return sorted(chosen, key=lambda one: one.dtype)


def measure(offline: OfflinePool, spec: Spec, count: int) -> Row:
    """How many of `count` files are refused at each rate, whole and mixed."""
    whole, mixes = AuditCounts(), AuditCounts()
    with producing(offline, spec) as (pool, producer):
        honest = pool.honest()
        for work, made in pool.files(producer, count):
            own = honest.make(work)
            for rate in AUDITS:
                whole.add(rate, pool.verdict(made, work, rate).code)
            for number in range(MIXES):
                some = mixed(honest, own, made, number * CHEATED // MIXES + work.id.counter)
                seed = tagged_hash("muster/benchmark-audits/1", number)
                for rate in AUDITS[1:] if not number else AUDITS[1:3]:
                    if some is not None:
                        mixes.add(rate, pool.verdict(some, work, rate, seed).code)
    return {
        "name": spec.label.removesuffix(" in files of 128"),
        "dtype": spec.dtype,
        "codes": dict(whole.codes),
        "whole": whole.refused(),
        "mixed": mixes.refused() if mixes.files[AUDIT_EVERYTHING] == count else None,
    }


class AuditCounts:
    """Verdicts by audit rate. `codes`: of what was audited entirely."""

    def __init__(self) -> None:
        self.codes, self.files, self._refused = Counter[str](), Counter[int](), Counter[int]()

    def add(self, rate: int, code: Code) -> None:
        self.files[rate] += 1
        self._refused[rate] += not code.is_accept
        if rate == AUDIT_EVERYTHING:
            self.codes[code.label] += 1

    def refused(self) -> list[list[int]]:
        return [[self._refused[rate], self.files[rate]] for rate in AUDITS]


def mixed(honest: Producer, own: Produced, made: Produced, first: int) -> Produced | None:
    """The honest file `own` with every sixteenth row of a cheated one, from the `first`-th on; None where there is no
    such file: the cheat is not in the rows, or not of this work."""
    if len(made.rollouts) != len(own.rollouts) or made.header.work != own.header.work:
        return None
    rows = list(own.rollouts)
    for row in range(first % CHEATED, len(rows), CHEATED):
        rows[row] = made.rollouts[row]
    if tuple(rows) == own.rollouts:
        return None
    try:
        return honest.seal(own.header.work, rows)
    except MusterError:
        return None
