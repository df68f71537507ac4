"""A swarm of eight on this machine: `python -m localnet.swarm`, or `make swarm`.

Real members with the demo's model and a local bucket that checks signatures. Each is killed once (`kill -9`), and the
bucket is gone for a minute. Says whether nobody stopped and nothing was trained twice; exits with 1 if not. The run's
folder has the numbers in `report.json`.
"""

import argparse
import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

from localnet.plan import new_run_folder
from localnet.ports import claim_port
from localnet.report import Fact, shown_fact
from localnet.swarm.outcome import facts, member_report, table
from localnet.swarm.plan import SwarmPlan, member_names, one_kill_each
from localnet.swarm.run import SwarmRun
from localnet.swarm.traces import MemberTrace
from protocol.files import write_atomic
from runtime.entry import run_main


def main() -> int:
    options = _options()
    names = member_names(options.members)
    kills = one_kill_each(names, options.seed, options.outage, options.pace)
    plan = SwarmPlan(
        new_run_folder(options.runs.resolve(), options.seed), options.seed, claim_port("s3", 0), names,
        kills[: options.kills] if options.kills is not None else kills,
    )  # fmt: skip
    plan = replace(plan, rounds=options.rounds, pace=options.pace, outage=options.outage, problems=options.problems)
    load = os.getloadavg()[0]
    run = SwarmRun(plan)
    traces, contents = run.run()
    found = list(facts(plan, traces, contents))
    numbers = _numbers(run, load)
    report = plan.root / "report.json"
    write_atomic(report, json.dumps(_report(run, traces, found, numbers), indent=1).encode() + b"\n")
    lines = [*table(traces, contents), *map(shown_fact, found), _spent(numbers), f"numbers: {report}"]
    print("\n".join(lines))
    return 0 if all(fact.good for fact in found) else 1


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m localnet.swarm", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--runs", type=Path, default=Path("build/swarm"), help="where runs are kept")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--members", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=SwarmPlan.rounds)
    parser.add_argument("--pace", type=float, default=SwarmPlan.pace, help="least seconds of a round")
    parser.add_argument("--outage", type=float, default=SwarmPlan.outage, help="seconds without the bucket")
    parser.add_argument("--kills", type=int, help="how many members are killed (all)")
    parser.add_argument("--problems", type=int, default=SwarmPlan.problems, help="held-out ones")
    return parser.parse_args()


def _numbers(run: SwarmRun, load: float) -> dict[str, Any]:
    times = os.times()
    return {
        "seconds": round(run.progress.seconds, 1),
        "cpu_seconds": round(times.children_user + times.children_system + times.user + times.system, 1),
        "cores": os.cpu_count(),
        "load_before": round(load, 2),
        "load_after": round(os.getloadavg()[0], 2),
        "peak_memory_mib": round(run.peak_memory),
        "outage_seconds": round(run.outage_seconds, 1),
    }


def _spent(numbers: dict[str, Any]) -> str:
    return (
        f"{numbers['seconds']:.0f} s on {numbers['cores']} cores, {numbers['cpu_seconds']:.0f} of processor time, "
        f"{numbers['peak_memory_mib'] / 1024:.1f} GiB of memory; load {numbers['load_before']} before, "
        f"{numbers['load_after']} after; the bucket was gone for {numbers['outage_seconds']:.0f} s"
    )


def _report(
    run: SwarmRun, traces: list[MemberTrace], found: list[Fact], numbers: dict[str, Any]
) -> dict[str, Any]:  # fmt: skip
    return {
        "seed": run.plan.seed,
        "rounds": run.plan.rounds,
        "pace": run.plan.pace,
        **numbers,
        "good": all(fact.good for fact in found),
        "facts": [vars(fact) for fact in found],
        "members": [member_report(one) for one in traces],
        "events": run.events,
    }


if __name__ == "__main__":
    run_main(main)
