"""The parent's side: starts one process per engine, bounded in time, and sums up what they measured."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Literal

from calibration.jobs import Done, Job
from calibration.plan import EngineSpec, Pair, Plan
from calibration.summary import PairMeasurements, summarise
from engines.runtime import torch_environment
from protocol.errors import ConfigError, MusterError

HOURS = 12
HELD_OUT = 4
"""One file of four is not used for thresholds, only judged by them."""


def measure_all(plan: Plan) -> list[PairMeasurements]:
    """Make each worker's files once, measure them with each of its verifiers. Raises MusterError."""
    out: dict[Pair, PairMeasurements] = {}
    for worker in dict.fromkeys(pair[0] for pair in plan.pairs):
        with tempfile.TemporaryDirectory(prefix="muster-calibrate-") as name:
            made = _run(plan, "produce", worker, Path(name))
            for pair in [pair for pair in plan.pairs if pair[0] == worker]:
                out[pair] = _summary(pair, made, _run(plan, "measure", pair[1], Path(name)), plan)
    return [out[pair] for pair in plan.pairs]


def _summary(pair: Pair, made: Done, seen: Done, plan: Plan) -> PairMeasurements:
    if made.engine is None or seen.engine is None:
        raise MusterError(f"{pair[0]} to {pair[1]}: a process did not name its engine", "run this again")
    # By rounds of all batches, so that each batch has the same share of held-out files.
    held = [(number // len(plan.batches)) % HELD_OUT == HELD_OUT - 1 for number in range(plan.files)]
    kept = [file for file, out in zip(seen.files, held, strict=True) if not out]
    spare = [file for file, out in zip(seen.files, held, strict=True) if out]
    return summarise(made.engine, seen.engine, kept, spare)


def _run(plan: Plan, do: Literal["produce", "measure"], engine: EngineSpec, folder: Path) -> Done:
    """One engine's process; its progress goes to standard error."""
    job = Job(do=do, plan=plan, engine=engine, folder=folder)
    question, answer = folder / "job.json", folder / "answer.json"
    answer.unlink(missing_ok=True)
    question.write_text(job.model_dump_json())
    command = [sys.executable, "-P", "-m", "calibration.process", str(question), str(answer)]
    environment = os.environ | torch_environment(plan.threads)
    try:
        subprocess.run(command, stdout=sys.stderr, env=environment, timeout=HOURS * 3600, check=True)
        done = Done.model_validate_json(answer.read_bytes())
    except subprocess.TimeoutExpired:
        raise MusterError(f"{engine} took more than {HOURS} hours", "pass a smaller --files") from None
    except (subprocess.CalledProcessError, OSError, ValueError) as error:
        what = f"the process of {engine} failed ({type(error).__name__}); its own words stand above"
        raise MusterError(what, "check memory and the engine's installation") from None
    if done.error:
        raise ConfigError(f"{engine}: {done.error}", done.hint)
    return done
