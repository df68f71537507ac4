"""`muster node dry-run`: make one file as a worker does and judge it as validators do, each engine in a process of its
own, without sending anything; and what comes of it."""

import secrets
import time
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer
from eth_utils.address import to_checksum_address

from calibration.plan import EngineSpec
from chain.indexer.records import Terms
from cli.diagnose.views import MEANING
from cli.options import EngineOptions
from cli.output import fields, seconds, table
from cli.profile import Profile, ProfileEngine
from cli.run.up import check_scoring
from engines.base import EngineInfo
from engines.torch_process import vllm_installed
from environments.pool import PoolEnvironments
from protocol.config import ChecksConfig, PoolConfig
from protocol.encoding import TOKEN, show_tokens
from protocol.errors import ConfigError, MusterError
from protocol.evidence.figures import engines_of, figures_of
from protocol.evidence.null_model import files_until_accused
from protocol.identity import WorkId
from protocol.rollout_file.rows import Commitment
from protocol.seeds import Work
from protocol.verdict import Code, Finding, Measurement, Verdict
from runtime.entry import alone
from runtime.pool_client import PoolClient
from runtime.process import EngineConfig, ProcessConfig
from storage.weights.cache import manifest_of

_LONGEST_SECONDS = 4 * 3600.0


def make_and_judge(observer: ProcessConfig, profile: Profile | None, worker: str | None) -> dict[str, Any]:
    """Make one file as `worker` (ENGINE:DTYPE:DEVICE, else the profile's) and judge it; return what came of it."""
    with closing(PoolClient(observer, None)) as client:
        work = next_work(client)
        terms, config = client.state.pools[observer.pool].terms, client.pool_config(20.0)
        check_scoring(config)
        maker, judge = engines(config, profile, worker)
        typer.echo("fetching the pool's current weights", err=True)
        weights = client.weights(work)
        sequence = len(client.state.submissions_of(observer.pool))
    typer.echo(f"making {config.work.rows} rollouts with {maker.name}, {maker.dtype} on {maker.device}", err=True)
    file = alone(f"making a file with {maker.name}", _LONGEST_SECONDS, make_file, config, maker, weights, work)
    typer.echo(f"judging them with {judge.name}, {judge.dtype} on {judge.device}", err=True)
    what = f"judging with {judge.name}"
    verdict, took = alone(
        what, _LONGEST_SECONDS, judge_file, config, judge, weights, work, file, sequence, terms.auditRate
    )
    return dry_run_view(work, file, verdict, took, terms, config)


@dataclass(frozen=True)
class DryRunFile:
    """A file and what would go on chain about it. `seconds`: what making took, the loading of weights aside."""

    data: bytes
    commitment: Commitment
    engine: EngineInfo
    seconds: float


def make_file(config: PoolConfig, engine: EngineConfig, weights: Path, work: Work) -> DryRunFile:
    """Make a file as the worker does. Raises MusterError if the engine or the weights are not usable."""
    from worker.produce import Producer

    producer = Producer(config, engine.make())
    producer.load(weights)
    started = time.monotonic()
    produced = producer.make(work)
    return DryRunFile(produced.data, produced.commitment, producer.engine.info, time.monotonic() - started)


def judge_file(
    config: PoolConfig,
    engine: EngineConfig,
    weights: Path,
    work: Work,
    file: DryRunFile,
    sequence: int,
    audit_rate: int,
) -> tuple[Verdict, float]:
    """Judge a file as validators do, as the pool's file `sequence`, audited at a rate in 1/65536. Return the verdict
    and what judging took (s), the loading of weights aside. Raises MusterError if the engine or the weights are not
    usable."""
    from validator.judging.checks import SubmissionFacts
    from validator.judging.pipeline import judge

    verifier = engine.make()
    verifier.load(weights)
    environments = PoolEnvironments.of(config, weights).at(weights)
    facts = SubmissionFacts(work, file.commitment, sequence, secrets.token_bytes(32), audit_rate)
    started = time.monotonic()
    manifest = manifest_of(weights)
    null_models = manifest.null_models if manifest else None
    verdict = judge(facts, file.data, config, environments, verifier, null_models)
    return verdict, time.monotonic() - started


def next_work(client: PoolClient) -> Work:
    """Return the file that a node of the newest step would make first. Raises ConfigError, MusterError."""
    pool = client.refresh().pools[client.config.pool]
    if not pool.steps:
        what = f"pool {pool.pool} has published no weights yet"
        raise ConfigError(what, "run this again once its trainer has published policy step 0")
    seeds = client.seeds(pool.terms.maxLag)
    if not seeds:
        raise MusterError(f"no policy step of pool {pool.pool} has a confirmed seed yet", "try again in a few blocks")
    step, node = max(seeds), to_checksum_address(secrets.token_bytes(20))
    return Work(WorkId(client.pool_id, node, step, 0), seeds[step], pool.steps[step].manifest)


def engines(config: PoolConfig, profile: Profile | None, worker: str | None) -> tuple[EngineConfig, EngineConfig]:
    """Return the engine that makes the file and the one that judges it, and set the environment that both start in."""
    own, dtype = profile.engine if profile else ProfileEngine(), config.model.dtype
    name = own.name if own.name != "auto" else "vllm" if vllm_installed() else "transformers"
    given = EngineSpec.parse(worker or f"{name}:{dtype}:{own.device}", dtype, "--worker")
    EngineOptions(threads=own.threads).set_threads()
    maker = EngineConfig.model_validate(vars(given) | {"threads": own.threads, "batch": own.batch})
    return maker, EngineConfig.model_validate(maker.model_dump() | {"name": "transformers", "dtype": dtype})


_HINTS = {
    Code.REJECT_WEIGHTS: "compute in the pool's dtype, with the engine's usual kernels and no quantisation; if other "
    "engines of this machine fail too, run `muster doctor` and look for damaged weights or memory",
    Code.REJECT_SAMPLING: "compute in the pool's dtype and leave the sampling to muster",
    Code.MALFORMED: "run the version of muster that the pool announces",
    Code.UNAVAILABLE: "report it: a dry run needs no storage",
}
_MS = 1000


def dry_run_view(
    work: Work, file: DryRunFile, verdict: Verdict, took: float, terms: Terms, config: PoolConfig
) -> dict[str, Any]:
    """Everything that `dry_run_text` says; in base units `pay`, if it is accepted, and what is `at_stake` otherwise."""
    units = file.commitment.units
    pay = units * terms.rate if verdict.code.is_paid else 0
    return {
        **work.id.flat(),
        "units": units,
        "rows": file.commitment.rows,
        "bytes": len(file.data),
        "worker": vars(file.engine),
        "verifier": verdict.engine,
        "made_seconds": round(file.seconds, 3),
        "judged_seconds": round(took, 3),
        "audited": len(verdict.audited),
        "verdict": verdict.code.label,
        "accepted": verdict.code.is_accept,
        "findings": [_finding(finding, config.checks) for finding in verdict.findings],
        "evidence": _evidence(verdict) if config.evidence else "",
        "pay": pay,
        "pay_per_hour": pay * 3600 * _MS // max(1, round(file.seconds * _MS)),
        "payable_after": terms.challengeWindow,
        "at_stake": terms.minStake,
        "meaning": MEANING[verdict.code],
        "hint": _HINTS.get(verdict.code, "" if verdict.code.is_accept else "report it: honest code made this file"),
    }


def _evidence(verdict: Verdict) -> str:
    """Return what the file shows by the null model of its policy step."""
    worker, verifier = engines_of(verdict)
    paid = {name: figure.nats for name, figure in figures_of(verdict).items() if figure.nats is not None}
    if not paid:
        return f"unknown: the policy step has no null model for files of {worker} verified by {verifier}"
    if (files := files_until_accused(paid)) is None:
        return "nothing shown: files like this one never accuse a node"
    most = max(paid, key=lambda name: max(paid[name]))
    return (
        f"WOULD BE ACCUSED after {files} such files, above all by {most}: it computes otherwise than {worker} "
        "was calibrated. Run this again; if it stays, use the engine and versions that the pool names"
    )


def _finding(finding: Finding, checks: ChecksConfig) -> dict[str, Any]:
    measurements = finding.measurements
    figures = [
        _figure(name, measurements[name], limit)
        for name in measurements
        if (limit := measurements.get(f"{name}_reject"))
    ]
    if "least_probability" in measurements:
        figures = [_figure("least_probability", measurements["least_probability"], checks.eos_probability_min)]
    return {"check": finding.check, "code": finding.code.label, "note": finding.note, "figures": figures}


def _figure(name: str, measured: Measurement, limit: Measurement) -> dict[str, Any]:
    """`share`: how much of the way to its limit. The least probability of an EOS is to be above its limit."""
    share = None
    if isinstance(measured, int | float) and isinstance(limit, int | float):
        over, under = (limit, max(measured, 1e-300)) if name == "least_probability" else (max(measured, 0.0), limit)
        share = over / under
    return {"figure": name, "measured": measured, "limit": limit, "share": share}


def dry_run_text(view: dict[str, Any]) -> str:
    """Return the same for people."""
    maker, judge = (
        f"{seconds(view[took])} with {view[who]['name']} {view[who]['version']}, "
        f"{view[who]['dtype']} on {view[who]['device']}"
        for took, who in (("made_seconds", "worker"), ("judged_seconds", "verifier"))
    )
    head = {
        "file": f"{view['rows']} rollouts, {view['units']} output tokens of policy step {view['step']}, "
        f"{view['bytes']} bytes",
        "made": f"in {maker}",
        "judged": f"in {judge}, {view['audited']} rollouts audited",
    }
    rows = [
        [finding["check"], finding["code"], *_cells(figure)]
        for finding in view["findings"]
        for figure in finding["figures"] or [None]
    ]
    lines = [f"verdict: {view['verdict']}: {view['meaning']}"]
    lines += [f"  {finding['check']}: {finding['note']}" for finding in view["findings"] if finding["note"]]
    if view["evidence"]:
        lines.append(f"evidence: {view['evidence']}")
    if view["accepted"]:
        hourly, when = f"{view['pay_per_hour'] / TOKEN:.2f}", seconds(view["payable_after"])
        lines.append(
            f"would have been paid: {show_tokens(view['pay'])} tokens, {when} after acceptance; {hourly} an hour at "
            "this pace"
        )
    else:
        lost = show_tokens(view["at_stake"])
        lines.append(f"would have been paid: nothing; a refused file costs the stake, {lost} or more")
        lines.append(f"what to do: {view['hint']}")
    body = table(["check", "says", "figure", "measured", "limit", "of the limit"], rows)
    return "\n\n".join([fields(head), body, "\n".join(lines)])


def _cells(figure: dict[str, Any] | None) -> list[str]:
    if figure is None:
        return ["", "", "", ""]
    measured, limit = (
        f"{value:.4g}" if isinstance(value := figure[name], int | float) else str(value)
        for name in ("measured", "limit")
    )
    way = "at least " if figure["figure"] == "least_probability" else "below "
    share = "" if figure["share"] is None else f"{figure['share']:.1%}" if figure["share"] < 1000 else "> 1000"
    return [figure["figure"], measured, way + limit, share]
