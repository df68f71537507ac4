"""The recipe's evidence on the demo's model, three seeds a setting, in one process without chain or storage.

`python -m benchmarks recipe [--only TEXT] [--quick]`. Settings are in benchmarks/recipe_settings.py; `--only` takes
those whose name contains TEXT. Every finished run is kept in benchmarks/results/recipe.json at once and not repeated,
unless its configuration has changed. Key: runs, [{setting, seed, measure, first, last, series}]; first and
last are held-out task reward, or the mean length error in tokens where `measure` says so; series is the task reward
of each step's rollouts. About a minute of one core a run. A quick run is one seed of each setting with two steps, and
is not kept.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.learning import learn
from benchmarks.recipe_settings import SEEDS, Setting, settings
from protocol.files import write_atomic

KEPT = Path(__file__).parent / "results" / "recipe.json"


def run(quick: bool, progress: Callable[[str], None], only: str = "") -> dict[str, Any]:
    everything = settings(quick)
    chosen = [setting for setting in everything if only in setting.name]
    if quick:
        return {"runs": [one_run(setting, SEEDS[0], progress) for setting in chosen]}
    valid = {(setting.name, setting.config.digest.hex()) for setting in everything}
    runs = [entry for entry in kept(KEPT) if (entry["setting"], entry["config"]) in valid]
    # Seed by seed: what is there after an interruption compares all settings.
    for seed in SEEDS:
        for setting in chosen:
            if any((entry["setting"], entry["seed"]) == (setting.name, seed) for entry in runs):
                continue
            progress(f"{setting.name}, seed {seed}")
            runs.append(one_run(setting, seed, progress))
            write_atomic(KEPT, json.dumps({"runs": runs}, indent=1).encode() + b"\n")
    return {"runs": runs}


def kept(path: Path) -> list[dict[str, Any]]:
    """The runs of former calls."""
    runs: list[dict[str, Any]] = json.loads(path.read_bytes())["runs"] if path.is_file() else []
    return runs


def one_run(setting: Setting, seed: int, progress: Callable[[str], None]) -> dict[str, Any]:
    made = learn(seed, setting.config, None, progress)
    return {
        "setting": setting.name,
        "seed": seed,
        "config": setting.config.digest.hex(),
        "measure": setting.measure,
        "first": made[f"{setting.measure}_first"],
        "last": made[f"{setting.measure}_last"],
        "series": [round(value, 4) for value in made["rewards"]],
        "files": sum(made["files"]),
        "reward_last": made["reward_last"],
        "seconds": made["seconds"],
    }
