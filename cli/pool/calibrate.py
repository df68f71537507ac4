"""`muster pool calibrate`: thresholds from measured honest files, signed; and checking and using such a document."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Option

from cli.options import KeyOptions, address_option, key_path
from cli.output import clock, emit, fields, table
from protocol.errors import ConfigError
from protocol.files import write_file

if TYPE_CHECKING:
    from calibration.document import Calibration


_COUNTS = ("files", "rollouts", "tokens", "chunks")


@dataclass(frozen=True)
class MeasureOptions:
    """Options of a measurement."""

    pool_config: Annotated[Path | None, Option(help="Pool configuration to measure.")] = None
    weights: Annotated[Path | None, Option(help="Model folder with the pool's weights.")] = None
    worker: Annotated[
        list[str] | None, Option(help="ENGINE:DTYPE:DEVICE that makes files; one for each --verifier.")
    ] = None
    verifier: Annotated[list[str] | None, Option(help="ENGINE:DTYPE:DEVICE that checks them; can be repeated.")] = None
    files: Annotated[int, Option(min=8, max=100_000, help="Honest files per pair.")] = 64
    batch: Annotated[list[int] | None, Option(min=1, max=4096, help="Decode batch sizes; 1, 8 and 64 if missing.")] = (
        None
    )
    false_reject: Annotated[float, Option(help="Probability of refusing an honest file, all figures together.")] = 1e-6
    safety: Annotated[float, Option(min=1.0, max=100.0, help="Factor on every measured bound, for other machines.")] = (
        1.5
    )
    audit_rate: Annotated[int, Option(min=1, max=65536, help="The pool's audit rate; 65536: every rollout.")] = 65536
    seed: Annotated[str, Option(help="What the honest files' randomness is made from.")] = "1"
    threads: Annotated[int, Option(min=1, max=1024, help="Threads of each engine.")] = 1
    out: Annotated[Path | None, Option(help="File to write the signed calibration to.")] = None


def calibrate(
    measure: MeasureOptions,
    key: KeyOptions,
    verify: Annotated[
        Path | None, Option(help="Check a calibration: signature, and whether thresholds follow.")
    ] = None,
    signer: Annotated[str | None, address_option("--signer", "With --verify: whose signature it must be.")] = None,
    apply: Annotated[Path | None, Option(help="Pool configuration whose `checks` get the thresholds.")] = None,
) -> None:
    """Measure honest files of a pool and sign the thresholds that follow.

    Or --verify such a document, and --apply it to a pool configuration that is not on chain yet."""
    from calibration.document import Calibration
    from calibration.document import apply as apply_to

    if verify is None:
        if signer is not None:
            raise ConfigError("--signer is for --verify", "leave it out")
        document = _measured(measure, key, apply)
    else:
        if measure.pool_config or measure.weights or measure.out or measure.worker or measure.verifier:
            raise ConfigError("--verify checks a document, it measures nothing", "leave the measuring options out")
        document = Calibration.load(verify)
        document.check(signer)
    if apply is not None:
        apply_to(document, apply)
    summary = _summary(document) | ({"applied": str(apply)} if apply else {})
    emit(summary, key.json, lambda: _text(summary, apply))


def _measured(options: MeasureOptions, key: KeyOptions, apply: Path | None) -> "Calibration":
    """Measure, sign and write. All that may fail after hours of measuring (password, file) is tried first."""
    from calibration.document import applicable, subject
    from calibration.measuring import calibrate
    from calibration.plan import Plan, parse_pairs
    from protocol.config import PoolConfig
    from runtime.keystore import open_key

    if options.pool_config is None or options.weights is None or options.out is None:
        raise ConfigError("measuring needs --pool-config, --weights and --out", "or pass --verify FILE")
    config = PoolConfig.load(options.pool_config)
    pairs = parse_pairs(options.worker or ["transformers"], options.verifier or ["transformers"], config)
    batches = tuple(dict.fromkeys(options.batch or (1, 8, 64)))
    plan = Plan(
        options.pool_config, options.weights, pairs, options.files, batches, options.seed, options.threads,
        options.audit_rate, options.false_reject, options.safety,
    )  # fmt: skip
    if options.out.exists():
        raise ConfigError(f"{options.out} exists", "choose another --out")
    if not os.access(options.out.absolute().parent, os.W_OK):
        raise ConfigError(f"cannot write into {options.out.absolute().parent}", "choose another --out")
    if apply is not None:
        applicable(apply, subject(config))
    document = calibrate(plan, open_key(key_path(key.keystore), key.password_file))
    write_file(options.out, document.canonical() + b"\n", "choose another path")
    return document


def _summary(document: "Calibration") -> dict[str, Any]:
    """Return the document in short; `heldout.bound` is the distribution-free 95% limit, 3/N."""
    from calibration.thresholds import blind

    heldout, over = document.heldout()
    whole = {"signer", "time", "method", "pool", "weights", "false_reject", "safety", "audit_rate", "thresholds"}
    pairs = [
        pair.model_dump(include=set(_COUNTS)) | {"pair": pair.name, "largest": pair.largest} for pair in document.pairs
    ]
    return document.model_dump(include=whole) | {
        "sees_nothing": blind(document.thresholds),
        "heldout": {"files": heldout, "over": over, "bound": 3 / heldout},
        "pairs": pairs,
    }


def _text(summary: dict[str, Any], applied: Path | None) -> str:
    heldout, pairs = summary["heldout"], summary["pairs"]
    facts = {name: summary[name] for name in ("signer", "pool", "weights", "false_reject", "safety", "audit_rate")}
    facts["measured"] = clock(summary["time"])
    facts["held out"] = (
        f"{heldout['over']} of {heldout['files']} files over; alone that shows at most {heldout['bound']:.2g} (95%), "
        "the rest is extrapolated"
    )
    rows = []
    for name, threshold in summary["thresholds"].items():
        blind = ", sees nothing" if name in summary["sees_nothing"] else ""
        rows.append([name, f"{threshold:g}{blind}", *(f"{pair['largest'][name]:g}" for pair in pairs)])
    body = table(["figure of a file", "reject at", *(f"largest, {pair['pair']}" for pair in pairs)], rows)
    measured = [f"{pair['pair']}: {', '.join(f'{pair[name]} {name}' for name in _COUNTS)}" for pair in pairs]
    done = [f"{applied}: thresholds written; its hash has changed"] if applied else []
    return "\n\n".join([fields(facts), "\n".join(measured), body, *done])
