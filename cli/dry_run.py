"""`muster node dry-run`: make one file and judge it, each engine in a process of its own, and what comes of it.

An engine keeps global state and memory; both are gone when its process ends.
"""

import multiprocessing
import os
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from calibration.dry_run import Draw as Draw
from calibration.dry_run import DryRunFile, Judged, judge_file, make_file
from chain.indexer.records import Terms
from cli.output import fields, seconds, table
from cli.views import MEANING
from protocol.config import ChecksConfig, PoolConfig
from protocol.encoding import TOKEN, show_tokens
from protocol.errors import MusterError, first_line
from protocol.files import die_with_parent
from protocol.seeds import Work
from protocol.verdict import Code, Finding, Measurement
from runtime.logs import start_logging
from runtime.process import EngineConfig

P = ParamSpec("P")
R = TypeVar("R")
_END_SECONDS = 10.0


def alone(what: str, seconds: float, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """What `function` returns or raises in a new process with this one's environment. `what` names it in errors: it
    fails with a MusterError if it takes more than `seconds`, or its process dies."""
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    child = context.Process(target=_told, args=(sender, os.getpid(), function, args, kwargs))
    child.start()
    sender.close()
    try:
        if not receiver.poll(seconds):
            raise MusterError(f"{what} took more than {seconds:.0f} s", "use a faster engine or device")
        result, error = receiver.recv()
    except EOFError:
        child.join(_END_SECONDS)
        hint = "its messages are above; look for room in memory, and at the engine's installation"
        raise MusterError(f"{what} ended early (exit code {child.exitcode})", hint) from None
    finally:
        # Python takes a process that used vLLM apart for many seconds, and its answer is here.
        child.kill()
        child.join(_END_SECONDS)
        receiver.close()
    if error is not None:
        raise error
    answer: R = result
    return answer


def _told(sender: Connection, parent: int, function: Callable[..., Any], args: Any, kwargs: Any) -> None:
    """In the child: send (result, None) or (None, error); what it prints is no part of the command's result."""
    die_with_parent(parent)
    os.dup2(2, 1)
    start_logging()
    answer: tuple[Any, MusterError | None]
    try:
        answer = function(*args, **kwargs), None
    except MusterError as error:
        answer = None, error
    except OSError as error:
        answer = None, MusterError(first_line(error), "check the path, its permissions and the room on its disk")
    sender.send(answer)
    sender.close()


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
