"""`muster node dry-run`: make one file and judge it, each engine in a process of its own, and what comes of it."""

from pathlib import Path
from typing import Any

from calibration.dry_run import Draw as Draw
from calibration.dry_run import DryRunFile, Judged, judge_file, make_file
from chain.indexer.records import Terms
from cli.output import fields, seconds, table
from cli.views import MEANING
from protocol.config import ChecksConfig, PoolConfig
from protocol.encoding import TOKEN, show_tokens
from protocol.seeds import Work
from protocol.verdict import Code, Finding, Measurement
from runtime.alone import alone
from runtime.process import EngineConfig

LONGEST_SECONDS = 4 * 3600.0


def make_alone(config: PoolConfig, engine: EngineConfig, weights: Path, work: Work) -> DryRunFile:
    """`make_file` in a process of its own. Raises MusterError."""
    return alone(f"making a file with {engine.name}", LONGEST_SECONDS, make_file, config, engine, weights, work)


def judge_alone(
    config: PoolConfig, engine: EngineConfig, weights: Path, work: Work, made: DryRunFile, draw: Draw
) -> Judged:
    """`judge_file` in a process of its own. Raises MusterError."""
    what = f"judging with {engine.name}"
    return alone(what, LONGEST_SECONDS, judge_file, config, engine, weights, work, made, draw)


_CURES = {
    Code.REJECT_WEIGHTS: "compute in the pool's dtype, with the engine's usual kernels and no quantisation; if other "
    "engines of this machine fail too, run `muster doctor` and look for damaged weights or memory",
    Code.REJECT_SAMPLING: "compute in the pool's dtype and leave the sampling to muster",
    Code.MALFORMED: "run the version of muster that the pool announces",
    Code.UNAVAILABLE: "report it: a dry run needs no storage",
}
_MS = 1000


def dry_run_view(work: Work, made: DryRunFile, judged: Judged, terms: Terms, checks: ChecksConfig) -> dict[str, Any]:
    """Everything that `dry_run_text` says; amounts in base units. `pay`: what a committee with this verdict would have
    had paid; `at_stake`: the stake that a rejection would have cost, at least."""
    verdict, units = judged.verdict, made.commitment.units
    pay = units * terms.rate if verdict.code.is_paid else 0
    return {
        **work.id.flat(),
        "units": units,
        "rows": made.commitment.rows,
        "bytes": len(made.data),
        "worker": vars(made.engine),
        "verifier": verdict.engine,
        "made_seconds": round(made.seconds, 3),
        "judged_seconds": round(judged.seconds, 3),
        "audited": len(verdict.audited),
        "verdict": verdict.code.label,
        "accepted": verdict.code.is_accept,
        "findings": [_finding(finding, checks) for finding in verdict.findings],
        "pay": pay,
        "pay_per_hour": pay * 3600 * _MS // max(1, round(made.seconds * _MS)),
        "payable_after": terms.challengeWindow,
        "at_stake": terms.minStake,
        "meaning": MEANING[verdict.code],
        "cure": _CURES.get(verdict.code, "" if verdict.code.is_accept else "report it: honest code made this file"),
    }


def _finding(finding: Finding, checks: ChecksConfig) -> dict[str, Any]:
    found = finding.measurements
    figures = [_figure(name, found[name], limit) for name in found if (limit := found.get(f"{name}_reject"))]
    if "least_probability" in found:
        figures = [_figure("least_probability", found["least_probability"], checks.eos_probability_min)]
    return {"check": finding.check, "code": finding.code.label, "note": finding.note, "figures": figures}


def _figure(name: str, measured: Measurement, limit: Measurement) -> dict[str, Any]:
    """`share`: how much of the way to its limit; None where the figure is not a number. The least probability of an EOS
    is judged the other way round: it is to be above its limit."""
    share = None
    if isinstance(measured, int | float) and isinstance(limit, int | float):
        over, under = (limit, max(measured, 1e-300)) if name == "least_probability" else (max(measured, 0.0), limit)
        share = over / under
    return {"figure": name, "measured": measured, "limit": limit, "share": share}


def dry_run_text(view: dict[str, Any]) -> str:
    """The same for people."""
    head = fields(
        {
            "file": f"{view['rows']} rollouts, {view['units']} output tokens of policy step {view['step']}, "
            f"{view['bytes']} bytes",
            "made": f"in {seconds(view['made_seconds'])} with {_engine(view['worker'])}",
            "judged": f"in {seconds(view['judged_seconds'])} with {_engine(view['verifier'])}, "
            f"{view['audited']} rollouts audited",
        }
    )
    body = table(["check", "says", "figure", "measured", "limit", "of the limit"], _rows(view["findings"]))
    return "\n\n".join([head, body, "\n".join(_outcome(view))])


def _rows(findings: list[dict[str, Any]]) -> list[list[str]]:
    rows = []
    for finding in findings:
        first = [finding["check"], finding["code"]]
        for figure in finding["figures"] or [None]:
            rows.append([*first, *(_cells(figure) if figure else ["", "", "", ""])])
            first = ["", ""]
    return rows


def _cells(figure: dict[str, Any]) -> list[str]:
    way = "at least " if figure["figure"] == "least_probability" else "below "
    share = "" if figure["share"] is None else f"{figure['share']:.1%}" if figure["share"] < 1000 else "> 1000"
    return [figure["figure"], _number(figure["measured"]), way + _number(figure["limit"]), share]


def _number(value: Measurement) -> str:
    return f"{value:.4g}" if isinstance(value, int | float) else str(value)


def _outcome(view: dict[str, Any]) -> list[str]:
    lines = [f"verdict: {view['verdict']}: {view['meaning']}"]
    lines += [f"  {one['check']}: {one['note']}" for one in view["findings"] if one["note"]]
    if view["accepted"]:
        pay, hourly = show_tokens(view["pay"]), f"{view['pay_per_hour'] / TOKEN:.2f}"
        when = seconds(view["payable_after"])
        return [*lines, f"would have been paid: {pay} tokens, {when} after acceptance; {hourly} an hour at this pace"]
    lost = f"would have been paid: nothing; a refused file costs the stake, {show_tokens(view['at_stake'])} or more"
    return [*lines, lost, f"what to do: {view['cure']}"]


def _engine(info: dict[str, str]) -> str:
    return f"{info['name']} {info['version']}, {info['dtype']} on {info['device']}"
