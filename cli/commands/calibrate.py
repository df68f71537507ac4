"""`muster calibrate`: thresholds from measured honest files, signed; and checking and using such a document."""

import math
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cli.options import JsonOption, KeystoreOption, PasswordFileOption, key_path
from cli.output import clock, emit, fields, table
from protocol.errors import ConfigError

if TYPE_CHECKING:
    from calibration.document import Calibration
    from calibration.measuring import Plan
    from protocol.config import PoolConfig

PoolConfigOption = Annotated[Path | None, typer.Option("--pool-config", help="Pool configuration to measure.")]
WeightsOption = Annotated[Path | None, typer.Option("--weights", help="Model folder with the pool's weights.")]
WorkerOption = Annotated[
    list[str] | None,
    typer.Option("--worker", help="ENGINE:DTYPE:DEVICE that makes files; repeat, one --verifier each."),
]
VerifierOption = Annotated[
    list[str] | None, typer.Option("--verifier", help="ENGINE:DTYPE:DEVICE that checks them; repeat for more pairs.")
]
FilesOption = Annotated[int, typer.Option("--files", min=8, max=100_000, help="Honest files per pair.")]
BatchOption = Annotated[
    list[int] | None, typer.Option("--batch", min=1, max=4096, help="Decode batch size; repeat. Default 1, 8 and 64.")
]
FalseOption = Annotated[
    float, typer.Option("--false-reject", help="Probability of refusing an honest file, all figures together.")
]
SafetyOption = Annotated[
    float, typer.Option("--safety", min=1.0, max=100.0, help="Factor on every measured bound, for other machines.")
]
AuditOption = Annotated[
    int, typer.Option("--audit-rate", min=1, max=65536, help="The pool's audit rate, of 65536 (65536: every rollout).")
]
SeedOption = Annotated[str, typer.Option("--seed", help="What the honest files' randomness is made from.")]
ThreadsOption = Annotated[int, typer.Option("--threads", min=1, max=1024, help="Threads of each engine.")]
OutOption = Annotated[Path | None, typer.Option("--out", help="File to write the signed calibration to.")]
VerifyOption = Annotated[
    Path | None, typer.Option("--verify", help="Check a calibration: signature, and that its thresholds follow.")
]
SignerOption = Annotated[str | None, typer.Option("--signer", help="With --verify: whose signature it must be.")]
ApplyOption = Annotated[
    Path | None, typer.Option("--apply", help="Pool configuration to write the thresholds into (its `checks`).")
]


def calibrate(
    pool_config: PoolConfigOption = None,
    weights: WeightsOption = None,
    worker: WorkerOption = None,
    verifier: VerifierOption = None,
    files: FilesOption = 64,
    batch: BatchOption = None,
    false_reject: FalseOption = 1e-6,
    safety: SafetyOption = 1.5,
    audit_rate: AuditOption = 65536,
    seed: SeedOption = "1",
    threads: ThreadsOption = 1,
    keystore: KeystoreOption = None,
    password_file: PasswordFileOption = None,
    out: OutOption = None,
    verify: VerifyOption = None,
    signer: SignerOption = None,
    apply: ApplyOption = None,
    json: JsonOption = False,
) -> None:
    """Measure honest files of a pool and sign the thresholds that follow; or --verify such a document, and --apply it
    to a pool configuration that is not on chain yet."""
    from calibration.document import Calibration

    if verify is not None:
        if pool_config or weights or out or worker or verifier:
            raise ConfigError("--verify checks a document, it measures nothing", "leave the measuring options out")
        document = Calibration.load(verify)
        document.check(_address(signer))
    else:
        if not 1e-12 <= false_reject <= 0.1:
            raise ConfigError(f"--false-reject {false_reject:g} is outside 1e-12 to 0.1", "1e-6 is usual")
        if pool_config is None or weights is None or out is None or signer is not None:
            raise ConfigError(
                "measuring needs --pool-config, --weights, --out and no --signer", "or pass --verify FILE"
            )
        plan, config = _plan(pool_config, weights, worker, verifier, files, batch, seed, threads)
        _writable(out)
        if apply is not None:
            _applicable(apply, config)
        document = _measured(plan, config, (false_reject, safety, audit_rate), keystore, password_file)
        _write(out, document.canonical() + b"\n")
    if apply is not None:
        _apply(document, apply)
    summary = _summary(document) | ({"applied": str(apply)} if apply else {})
    emit(summary, json, lambda: _text(document, summary, apply))


def _address(text: str | None) -> str | None:
    from protocol.eip712 import checked_address

    try:
        return None if text is None else checked_address(text)
    except ValueError as error:
        raise ConfigError(f"--signer: {error}", "copy it again, with its checksum") from None


def _plan(
    pool_config: Path,
    weights: Path,
    worker: list[str] | None,
    verifier: list[str] | None,
    files: int,
    batch: list[int] | None,
    seed: str,
    threads: int,
) -> "tuple[Plan, PoolConfig]":
    from calibration.jobs import Spec
    from calibration.measuring import Plan
    from protocol.config import PoolConfig

    config = PoolConfig.load(pool_config)
    if not (weights / "config.json").is_file():
        raise ConfigError(f"{weights} is not a model folder", "name one with config.json and safetensors files")
    workers, verifiers = worker or ["transformers"], verifier or ["transformers"]
    if len(workers) != len(verifiers):
        what = f"{len(workers)} --worker and {len(verifiers)} --verifier are no pairs"
        raise ConfigError(what, "give one --verifier for each --worker, in the same order")
    dtype = config.model.dtype
    pairs = [
        (Spec.parse(a, dtype, "--worker"), Spec.parse(b, dtype, "--verifier"))
        for a, b in zip(workers, verifiers, strict=True)
    ]
    batches = tuple(dict.fromkeys(batch or (1, 8, 64)))
    if files < 4 * len(batches):
        raise ConfigError(f"--files {files} is too few for {len(batches)} batch sizes", f"at least {4 * len(batches)}")
    if len(seed) > 100:
        raise ConfigError("--seed is too long", "at most 100 characters")
    return Plan(pool_config, weights, tuple(dict.fromkeys(pairs)), files, batches, seed, threads), config


def _measured(
    plan: "Plan",
    config: "PoolConfig",
    asked: tuple[float, float, int],
    keystore: Path | None,
    password_file: Path | None,
) -> "Calibration":
    """The signed document. The key is opened first: hours of measuring must not end in a mistyped password."""
    from calibration.document import Calibration, subject, weights_hash
    from calibration.means import Design
    from calibration.measuring import measure_all
    from calibration.thresholds import thresholds
    from runtime.keystore import open_key

    account = open_key(key_path(keystore), password_file)
    hashed = weights_hash(plan.weights)
    pairs = tuple(measure_all(plan))
    if weights_hash(plan.weights) != hashed:
        raise ConfigError(f"{plan.weights} changed while it was measured", "measure a folder that nobody writes to")
    false_reject, safety, audit_rate = asked
    work = config.work
    design = Design(work.problems_per_file, work.samples_per_problem, audit_rate / 65536)
    found = thresholds(pairs, design, false_reject, safety)
    if unbounded := [name for name, value in found.items() if not 0 < value < math.inf]:
        raise ConfigError(f"no bound for {', '.join(unbounded)}", "measure more --files, or audit more rollouts")
    document = Calibration(
        time=int(time.time()),
        seed=plan.seed,
        pool=subject(config),
        weights=hashed,
        problems=work.problems_per_file,
        samples=work.samples_per_problem,
        audit_rate=audit_rate,
        false_reject=false_reject,
        safety=safety,
        pairs=pairs,
        thresholds=found,
        signer=account.address,
    ).signed(account)
    document.check()
    return document


def _applicable(path: Path, config: "PoolConfig") -> "PoolConfig":
    from calibration.document import subject
    from protocol.config import PoolConfig

    found = PoolConfig.load(path)
    if subject(found) != subject(config):
        raise ConfigError(f"{path} has another model, task or work than was measured", "calibrate that pool")
    return found


def _apply(document: "Calibration", path: Path) -> None:
    """Write the thresholds into a pool configuration that has the measured model, task and work."""
    import json

    from calibration.document import subject
    from protocol.config import PoolConfig

    config = PoolConfig.load(path)
    if subject(config) != document.pool:
        what = f"{path} has another model, task or work than the calibration"
        raise ConfigError(what, "calibrate that pool; its thresholds are unchanged")
    changed = config.model_copy(update={"checks": document.checks(config.checks)})
    _write(path, json.dumps(changed.model_dump(mode="json"), indent=2, ensure_ascii=False).encode() + b"\n")


def _writable(path: Path) -> None:
    """Hours of measuring must not end at a folder that cannot be written."""
    import os

    if path.exists():
        raise ConfigError(f"{path} exists", "choose another --out")
    if not os.access(path.absolute().parent, os.W_OK):
        raise ConfigError(f"cannot write into {path.absolute().parent}", "choose another --out")


def _write(path: Path, data: bytes) -> None:
    from protocol.files import write_atomic

    try:
        write_atomic(path, data)
    except OSError as error:
        raise ConfigError(f"cannot write {path}: {error.strerror}", "choose another path") from None


def _summary(document: "Calibration") -> dict[str, Any]:
    """The document in short; `heldout.bound` is the distribution-free 95% limit, 3/N."""
    from calibration.thresholds import blind

    heldout, over = document.heldout()
    return {
        "signer": document.signer,
        "time": document.time,
        "method": document.method,
        "pool": document.pool,
        "weights": document.weights,
        "false_reject": document.false_reject,
        "safety": document.safety,
        "audit_rate": document.audit_rate,
        "thresholds": document.thresholds,
        "sees_nothing": blind(document.thresholds),
        "heldout": {"files": heldout, "over": over, "bound": 3 / heldout},
        "pairs": [
            {
                "pair": pair.name,
                "files": pair.files,
                "rollouts": pair.rollouts,
                "tokens": pair.tokens,
                "chunks": pair.chunks,
                "largest": {name: spread.largest for name, spread in pair.spread.items()},
            }
            for pair in document.pairs
        ],
    }


def _text(document: "Calibration", summary: dict[str, Any], applied: Path | None) -> str:
    heldout = summary["heldout"]
    head = fields(
        {
            "signer": document.signer,
            "measured": clock(document.time),
            "pool": document.pool,
            "weights": document.weights,
            "false rejects": f"{document.false_reject:g} per submission at most; safety factor {document.safety:g}",
            "held out": f"{heldout['over']} of {heldout['files']} files over; alone that shows at most "
            f"{heldout['bound']:.2g} (95%), the rest is extrapolated",
        }
    )
    useless = summary["sees_nothing"]
    rows = [
        [
            name,
            f"{threshold:g}" + (", sees nothing" if name in useless else ""),
            *(f"{pair.spread[name].largest:g}" for pair in document.pairs),
        ]
        for name, threshold in document.thresholds.items()
    ]
    body = table(["figure of a file", "reject at", *(f"largest, {pair.name}" for pair in document.pairs)], rows)
    counts = "\n".join(
        f"{p.name}: {p.files} files, {p.rollouts} rollouts, {p.tokens} tokens, {p.chunks} chunks"
        for p in document.pairs
    )
    parts = [head, counts, body, *([f"{applied}: thresholds written; its hash has changed"] if applied else [])]
    return "\n\n".join(parts)
