"""From a plan to a signed calibration, and from a calibration to a pool's configuration."""

import json
import math
import time
from pathlib import Path

from calibration.document import Calibration, subject, weights_hash
from calibration.measuring import measure_all
from calibration.plan import ErrorBudget, Plan
from calibration.toml_edit import with_numbers, with_table
from protocol.accounts import LocalAccount
from protocol.config import PoolConfig
from protocol.errors import ConfigError
from protocol.evidence.law import EvidenceConfig, PairLaw
from protocol.files import explained, write_atomic


def calibrate(plan: Plan, budget: ErrorBudget, account: LocalAccount) -> Calibration:
    """Measure, compute the thresholds and sign them. Raises MusterError; ConfigError where no bound was found."""
    config = PoolConfig.load(plan.pool_config)
    hashed = weights_hash(plan.weights)
    pairs = tuple(measure_all(plan))
    if weights_hash(plan.weights) != hashed:
        raise ConfigError(f"{plan.weights} changed while it was measured", "measure a folder that nobody writes to")
    document = Calibration(
        time=int(time.time()),
        seed=plan.seed,
        pool=subject(config),
        weights=hashed,
        problems=config.work.problems_per_file,
        samples=config.work.samples_per_problem,
        audit_rate=budget.audit_rate,
        false_reject=budget.false_reject,
        safety=budget.safety,
        pairs=pairs,
        thresholds={},
        signer=account.address,
    )
    found = document.computed()
    if unbounded := [name for name, value in found.items() if not 0 < value < math.inf]:
        raise ConfigError(f"no bound for {', '.join(unbounded)}", "measure more --files, or audit more rollouts")
    document = document.model_copy(update={"thresholds": found, "evidence": document.law()}).signed(account)
    document.check()
    return document


def applicable(path: Path, measured: str) -> PoolConfig:
    """The pool configuration in a file. Raises ConfigError unless its `subject` is the one that was measured."""
    config = PoolConfig.load(path)
    if subject(config) != measured:
        what = f"{path} has another model, task or work than was measured"
        raise ConfigError(what, "calibrate that pool; its thresholds are unchanged")
    return config


def apply(document: Calibration, path: Path) -> None:
    """Write the thresholds and the law of evidence into an applicable pool configuration; comments of one in TOML stay.
    Raises ConfigError."""
    config = applicable(path, document.pool)
    asked = None if config.evidence is None else config.evidence.own_engine
    law = evidence_config(document.evidence, document.audit_rate, asked)
    changed = config.model_copy(update={"checks": document.checks(config.checks), "evidence": law})
    if path.suffix == ".toml":
        text = with_numbers(path.read_text(encoding="utf-8"), "checks", document.thresholds)
        text = with_table(text, "evidence", law.model_dump(mode="json") if law else None)
    else:
        text = json.dumps(changed.model_dump(mode="json"), indent=2, ensure_ascii=False) + "\n"
    write(path, text.encode())


def evidence_config(laws: tuple[PairLaw, ...], audit_rate: int, own_engine: bool | None) -> EvidenceConfig | None:
    """What a pool names, with what it asked of jurors before (`own_engine`). At first (None) it asks for the worker's
    engine where it can: else jurors who have it vote against those who have not. Raises ConfigError where the pairs do
    not suffice."""
    if not laws:
        return None
    law = EvidenceConfig(audit_rate=audit_rate, laws=laws)
    lacking = law.unseen_by_itself()
    if own_engine and lacking:
        what = f"the pool's `own_engine` wants a law of {lacking} seen by itself"
        raise ConfigError(what, "measure that pair too: --worker and --verifier of one engine")
    return law.model_copy(update={"own_engine": not lacking if own_engine is None else own_engine})


def write(path: Path, data: bytes) -> None:
    with explained(f"write {path}", "choose another path"):
        write_atomic(path, data)
