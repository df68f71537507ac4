"""From a submission's bytes to a verdict: read, check, prefill once, check again.

Total on hostile input: whatever the bytes, the result is a verdict. Only faults of this machine (the reader's sandbox,
the engine) raise. Time is bounded by the pool's limits: the reader's, and one prefill of at most a full file.
"""

import hashlib
from dataclasses import replace

from engines.base import Engine
from environments.pool import PoolEnvironments
from protocol.config import PoolConfig
from protocol.rollout_file.file import read
from protocol.rollout_file.rows import Limits, MalformedFile
from protocol.verdict import Code, Finding, Verdict, combine
from validator.checks import FILE_CHECKS, PREFILL_CHECKS
from validator.checks.base import refuse
from validator.context import CheckContext, SubmissionFacts, verdict_on
from validator.measurements import measure
from validator.row_figures import evidence


def judge(
    facts: SubmissionFacts,
    data: bytes | None,
    config: PoolConfig,
    environment: PoolEnvironments,
    engine: Engine,
) -> Verdict:
    """Judge one submission. `data` is None when nobody served bytes of its SHA-256. `engine` holds its step's
    weights. Nothing else counts: whoever judges later or alone finds the same. Raises MusterError if reader or engine
    fails."""
    context, findings = _open(facts, data, config, environment)
    audited: list[int] = []
    if context is not None:
        findings = _before_prefill(context)
        if findings[-1].code.is_accept:
            context = replace(context, measurements=measure(context, engine))
            findings += [*(check(context) for check in PREFILL_CHECKS), evidence(context)]
            audited = context.audited
    info = engine.info
    arithmetic = {"name": info.name, "version": info.version, "dtype": info.dtype, "device": info.device}
    return verdict_on(facts, config, combine(findings), arithmetic, audited, findings)


def _open(
    facts: SubmissionFacts, data: bytes | None, config: PoolConfig, environment: PoolEnvironments
) -> tuple[CheckContext | None, list[Finding]]:
    if data is None:
        return None, [refuse("fetch", Code.UNAVAILABLE, "no source serves the file")]
    if hashlib.sha256(data).digest() != facts.commitment.sha256:
        return None, [refuse("fetch", Code.UNAVAILABLE, "no source serves bytes of the committed SHA-256")]
    try:
        header, rollouts = read(data, Limits.of(config.work))
    except MalformedFile as error:
        return None, [refuse("read", Code.MALFORMED, error.what[:300])]
    return CheckContext(facts, config, environment, data, header, tuple(rollouts)), []


def _before_prefill(context: CheckContext) -> list[Finding]:
    """Checks on the file alone, up to the first refusal: what follows it would rest on false ground."""
    findings = []
    for check in FILE_CHECKS:
        findings.append(check(context))
        if not findings[-1].code.is_accept:
            break
    return findings
