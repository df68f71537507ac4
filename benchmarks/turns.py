"""Attacks on rollouts of several turns: the built-in tool environment, the tiny model that was taught to use it."""

from collections import Counter
from pathlib import Path
from typing import Any

from attacks.turns import TURN_ATTACKS
from benchmarks.offline_pool import BFLOAT16, FLOAT32, OfflinePool, Progress, work_of
from localnet.plan import TOOL_ENVIRONMENT
from trainer.base_model import base_model
from trainer.tiny_model import tiny_model_config

COUNT, COARSE_COUNT, QUICK_COUNT = 200, 24, 2
STRENGTHS = (0.0, 1.0)


def run(quick: bool, progress: Progress, count: int = 0, only: str = "") -> dict[str, Any]:
    """{attacks: [{name, submissions, detected, codes, …}], honest: the same of honest files, turns: {turns: rollouts},
    bfloat16: {attacks, honest}, of fewer files}. `only`: attacks whose names contain this text. The base model comes
    from the cache, or is trained first."""
    folder = base_model(tiny_model_config(), TOOL_ENVIRONMENT, 1, progress=progress)
    count, coarse = count or (QUICK_COUNT if quick else COUNT), QUICK_COUNT if quick else COARSE_COUNT
    fine = OfflinePool.of(folder, FLOAT32, environment=TOOL_ENVIRONMENT)
    found = rows(fine, folder, count, only, progress) | {"turns": turns_of(fine, count)}
    rough = OfflinePool.of(folder, BFLOAT16, environment=TOOL_ENVIRONMENT)
    return found | {"bfloat16": rows(rough, folder, min(count, coarse), only, progress)}


def rows(offline: OfflinePool, folder: Path, count: int, only: str, progress: Progress) -> dict[str, Any]:
    """Honest files, and every attack at both strengths."""
    honest, attacks = offline.row("honest", offline.honest(), count, progress), []
    for name, attack in sorted(TURN_ATTACKS.items()):
        for strength in STRENGTHS if only in name else ():
            producer = attack.build(offline.config, offline.engine(), strength)
            producer.load(folder)
            label = f"{name}={strength:g}" if strength else name
            attacks.append(offline.row(label, producer, count, progress))
    return {"attacks": attacks, "honest": honest}


def turns_of(offline: OfflinePool, count: int) -> dict[str, int]:
    """How many honest rollouts have so many turns."""
    found: Counter[int] = Counter()
    for counter in range(count):
        for row in offline.honest().make(work_of(counter)).rollouts:
            found[len(offline.environment.transcript(row.problem_seed, row.output_tokens).turns)] += 1
    return {str(turns): found[turns] for turns in sorted(found)}
