"""Do honest validators with other engines and batches agree? Their kept verdicts, compared after the run."""

from pathlib import Path

from localnet.plan import DemoPlan, ValidatorSpec
from orchestrator.dashboard.results import Agreement, ValidatorSummary, VerdictDifference
from protocol.errors import IntegrityError
from protocol.verdict import Verdict
from validator.compare import CODE, differences, largest


def agreement(plan: DemoPlan) -> Agreement:
    """How the kept verdicts of the honest validators' processes compare."""
    honest = [spec for spec in plan.validators if not spec.attack]
    kept = {spec.name: kept_verdicts(plan.home(f"validator-{spec.name}")) for spec in honest}
    judged: dict[str, dict[str, Verdict]] = {}
    for name, verdicts in kept.items():
        for facts, verdict in verdicts.items():
            judged.setdefault(facts, {})[name] = verdict
    shared = {facts: by for facts, by in sorted(judged.items()) if len(by) > 1}
    differing, found = [], []
    for by in shared.values():
        first, *others = by.values()
        off = [one for other in others for one in differences(other, first)]
        found += off
        if len({verdict.code for verdict in by.values()}) > 1:
            differing.append(_difference(by, [str(one) for one in off]))
    return Agreement(
        validators=[_validator(spec, kept[spec.name]) for spec in honest],
        compared=len(shared),
        differing=differing,
        checks_differing=sum(one.measurement == CODE for one in found),
        largest_differences=largest(found),
    )


def kept_verdicts(home: Path) -> dict[str, Verdict]:
    """The verdicts that a validator stored, by what they were judged from: the file's name stands for all its facts.

    A file that a kill cut short is left out.
    """
    out = {}
    for path in sorted(home.glob("*/verdicts/*.json")):
        try:
            out[path.name] = Verdict.parse(path.read_bytes())
        except (OSError, IntegrityError):
            continue
    return out


def _validator(spec: ValidatorSpec, verdicts: dict[str, Verdict]) -> ValidatorSummary:
    used = sorted({verdict.engine.get("name", "?") for verdict in verdicts.values()})
    judged = len({verdict.sequence for verdict in verdicts.values()})
    return ValidatorSummary(name=spec.name, engine="+".join(used) or spec.engine, batch=spec.batch, judged=judged)


def _difference(by: dict[str, Verdict], off: list[str]) -> VerdictDifference:
    codes = {name: verdict.code.label for name, verdict in by.items()}
    return VerdictDifference(submission=next(iter(by.values())).sequence, codes=codes, differences=off)
