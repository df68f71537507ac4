"""A swarm of eight on this machine: `python -m localnet.swarm`, or `make swarm`.

Real members with the demo's model and a local bucket that checks signatures. Each is killed once (`kill -9`), and the
bucket is gone for a minute. Says whether nobody stopped and nothing was trained twice; exits with 1 if not. The run's
folder has the numbers in `report.json`.
"""

import argparse
import json
import os
from pathlib import Path

from localnet.plan import new_run_folder
from localnet.ports import claim_port
from localnet.swarm.outcome import facts, table
from localnet.swarm.plan import SwarmPlan, one_kill_each
from localnet.swarm.run import SwarmRun
from protocol.files import write_atomic
from runtime.entry import run_main


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m localnet.swarm", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--runs", type=Path, default=Path("build/swarm"), help="where runs are kept")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--members", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=SwarmPlan.rounds)
    parser.add_argument("--pace", type=float, default=SwarmPlan.pace, help="least seconds of a round")
    parser.add_argument("--outage", type=float, default=SwarmPlan.outage, help="seconds without the bucket")
    parser.add_argument("--problems", type=int, default=SwarmPlan.problems, help="held-out ones")
    options = parser.parse_args()
    names = tuple(f"member-{number}" for number in range(1, options.members + 1))
    plan = SwarmPlan(
        new_run_folder(options.runs.resolve(), options.seed), options.seed, claim_port("s3", 0), names,
        one_kill_each(names, options.seed, options.outage, options.pace), options.rounds, options.pace, options.outage,
        problems=options.problems,
    )  # fmt: skip
    run = SwarmRun(plan)
    members, contents = run.run()
    facts_found, times = list(facts(plan, members, contents)), os.times()
    good = all(fact.good for fact in facts_found)
    numbers = {
        "seconds": round(run.progress.seconds, 1),
        "cpu_seconds": round(times.children_user + times.children_system + times.user + times.system, 1),
        "cores": os.cpu_count(),
        "load": round(os.getloadavg()[0], 2),
        "peak_memory_mib": round(run.peak_memory),
        "outage_seconds": round(run.outage_seconds, 1),
    }
    report = {
        "seed": plan.seed, "rounds": plan.rounds, "pace": plan.pace, **numbers, "good": good, "events": run.events,
        "facts": [fact._asdict() for fact in facts_found], "members": [member.report() for member in members],
    }  # fmt: skip
    path = plan.root / "report.json"
    write_atomic(path, json.dumps(report, indent=1).encode() + b"\n")
    spent = ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in numbers.items())
    lines = [f"{'yes' if fact.good else 'NO '} {fact.text}" for fact in facts_found]
    print("\n".join([*table(members, contents), *lines, spent, f"numbers: {path}"]))
    return 0 if good else 1


if __name__ == "__main__":
    run_main(main)
