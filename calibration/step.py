"""`python -m calibration.step`: learn the null models of one policy step from honest files of its weights.

The trainer starts it for a step that is not published yet, and ends it when its time is over."""

import argparse
import itertools
import logging
from pathlib import Path

from calibration.measuring import measure_all
from calibration.null_model import audit_draws, pair_null_model
from calibration.plan import EngineSpec, Plan
from protocol.config import PoolConfig
from protocol.encoding import canonical_json
from protocol.evidence.figures import arithmetic_label
from protocol.evidence.null_model import StepNullModels
from protocol.files import die_with_parent, write_atomic
from runtime.entry import start_logging

log = logging.getLogger("muster.calibrate")


def learned(plan: Plan, step: int) -> StepNullModels:
    """Return the null models of policy step `step`, one for each pair of the plan. Raises MusterError."""
    pairs = measure_all(plan)
    models = []
    for pair in pairs:
        worker, verifier = (arithmetic_label(e.name, e.dtype, e.device) for e in (pair.worker, pair.verifier))
        strata = [[file.draws for file in pair.files if file.batch == batch] for batch in plan.batches]
        pilot = [file.draws for file in pair.held]
        model = pair_null_model(worker, verifier, strata, pilot, step, len(pairs))
        log.info("step %d: %d bets on files of %s by %s", step, model.made, worker, verifier)
        models.append(model)
    return StepNullModels(audit_rate=plan.audit_rate, pairs=tuple(models))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("--pool-config", "--weights", "--out"):
        parser.add_argument(name, type=Path, required=True)
    for name in ("--step", "--files", "--audit-rate", "--threads", "--parent"):  # it ends with its parent's process id
        parser.add_argument(name, type=int, required=True)
    parser.add_argument("--engine", action="append", required=True, help="ENGINE:DTYPE:DEVICE")
    parser.add_argument("--batch", type=int, action="append", required=True)
    options = parser.parse_args()
    die_with_parent(options.parent)
    start_logging()
    config = PoolConfig.load(options.pool_config)
    engines = [EngineSpec.parse(text, config.model.dtype, "--engine") for text in options.engine]
    # Honest files follow from pool and step: anybody with the weights can measure them again.
    seed = f"{config.digest.hex()} {options.step}"
    plan = Plan(
        options.pool_config, options.weights, tuple(itertools.product(engines, engines)), options.files,
        tuple(options.batch), seed, options.threads, options.audit_rate, 1e-6, 1.0, audit_draws(options.audit_rate),
    )  # fmt: skip
    write_atomic(options.out, canonical_json(learned(plan, options.step).model_dump(mode="json")))


if __name__ == "__main__":
    main()
