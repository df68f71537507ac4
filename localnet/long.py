"""Two hundred policy steps on the local network: `python -m localnet.long`, or `make long`.

Says whether the model learned, whether any process's memory grew, and whether disk stayed within its limit; exits with
1 if not. A run that was interrupted goes on where it stood.

What is kept: the bucket (every policy step's weights, every file), the chain, each process's copy of its events, and
verdicts. What is deleted: weights in caches, the trainer's checkpoints and exports, files at their workers, all but the
newest; states of the chain but those of the last blocks.
"""

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path

from localnet.base_model import base_model_process, wait_for_folder
from localnet.demo import INTERRUPTED, Onlooker, ResumableDemo, kept_ports, make_ready
from localnet.footprint import SHORTEST, Footprint, FootprintSample, Growth, growths, read_samples
from localnet.plan import CANARY, CHEAT, WORKER_BATCH, DemoPlan, cast, pool_config
from localnet.report import Fact, highlights, problems, shown, shown_fact
from orchestrator.dashboard.results import RunSummary, read_results
from protocol.config import PoolConfig
from protocol.files import write_atomic
from runtime.entry import run_main
from runtime.supervisor import Supervisor

REWARD = 0.95
MEMORY_SHARE, MEMORY_MIB = 0.1, 16.0
"""By how much a process may grow from the second quarter to the last: events and verdicts of a run stay in memory."""
CHAIN_MIB_PER_STEP = 1.0
"""anvil keeps every block and every transaction in memory."""
DISK_MIB, DISK_MIB_PER_STEP = 320.0, 5.0


class LongDemo(ResumableDemo):
    """A run that samples its footprint."""

    def onlookers(self) -> list[Onlooker]:
        root = self.plan.root
        return [*super().onlookers(), Footprint(self.network.supervisor, root, root / "footprint.jsonl")]


def facts(summary: RunSummary, samples: Sequence[FootprintSample]) -> Iterator[Fact]:
    """What a long run must show."""
    last = summary.reward_last
    shows = f"held-out reward {shown(summary.reward_first)} → {shown(last)} in {summary.steps} steps"
    yield Fact(f"{shows}, at least {REWARD}", last is not None and last >= REWARD)
    found = list(growths(samples))
    for one in found:
        limit = _memory_limit(one)
        text = (
            f"memory of {one.process}: {one.early:.0f} → {one.late:.0f} MiB in {one.steps} steps, at most {limit:.0f}"
        )
        yield Fact(text, one.late <= limit)
    missing = set(samples[-1].memory if samples else ()) - {one.process for one in found}
    for name in sorted(missing):
        yield Fact(f"memory of {name}: it never lived for {SHORTEST} steps", False)
    limit, used = DISK_MIB + DISK_MIB_PER_STEP * summary.steps, max((one.disk for one in samples), default=0.0)
    yield Fact(f"disk: {used:.0f} MiB, at most {limit:.0f}", bool(samples) and used <= limit)
    for what in problems(summary):
        yield Fact(what, False)


def _memory_limit(one: Growth) -> float:
    chain = CHAIN_MIB_PER_STEP * one.steps / 2 if one.process == "chain" else 0.0
    return one.early * (1 + MEMORY_SHARE) + MEMORY_MIB + chain


def run(root: Path, seed: int, steps: int) -> None:
    """Make the run at `root`, or go on with it; nothing if it has ended."""
    if (root / "summary.json").exists():
        return
    make_ready(root)
    nodes, validators = cast(CHEAT, CANARY)
    ports = kept_ports(root / "ports.json")
    plan = DemoPlan(root, seed, steps, *ports, nodes, validators, worker_batch=WORKER_BATCH)
    config = pool_config(seed, steps)
    LongDemo(plan, config, base_model(plan, config)).run()


def base_model(plan: DemoPlan, config: PoolConfig) -> Path:
    """The demo's base model, made if it is not in the cache."""
    path = plan.root / "pool.json"
    write_atomic(path, config.canonical())
    supervisor = Supervisor(print)
    process = supervisor.start(base_model_process(path, plan.seed, plan.log("base-model")))
    return wait_for_folder(process, supervisor.check, print)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m localnet.long", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--home", type=Path, default=Path("build/long"), help="where runs are kept")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--steps", type=int, default=200)
    options = parser.parse_args()
    root = options.home.resolve() / f"seed-{options.seed}-steps-{options.steps}"
    run(root, options.seed, options.steps)
    summary, _, _details = read_results(root)
    found = list(facts(summary, read_samples(root / "footprint.jsonl")))
    for fact in found:
        print(shown_fact(fact))
    for line in highlights(summary):
        print(line)
    return 0 if all(fact.good for fact in found) else 1


if __name__ == "__main__":
    run_main(main, interrupted=INTERRUPTED)
