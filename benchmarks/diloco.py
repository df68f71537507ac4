"""What do workers that synchronise rarely lose, and how many bytes do they save?

`python -m benchmarks diloco [--quick] [--resume] [--seconds S]`. Four workers train the demo's model on the docstrings
of the standard library, from one checkpoint, with equal tokens: synchronised at every step (`dp`), and by DiLoCo with H
inner steps between outer steps, in float32, int8 and sparse. They take turns in one process, without a bucket.

`loss_gap`: held-out loss over that of `dp`, less 1, by the name of the run (worst seed). `bytes_ratio`: bytes of a
float32 ring all-reduce at every step to those that a worker sends and receives where all fetch all. Each finished run
is a line of results/diloco_runs.jsonl; `--resume` repeats none, `--seconds` begins none after that time.
"""

import ast
import json
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.support.kept import keep, kept
from benchmarks.support.rollouts import save_random_demo
from diloco.config import AdmissionConfig, DilocoConfig, DilocoRun, Mode, OuterConfig, TextTaskConfig
from diloco.inner import Corpus, Cursor, DataShare, text_corpus
from diloco.messages import Contribution, Expected, ShardEntry
from diloco.outer import OuterState, Payloads, encode_payload, settle
from diloco.tasks import TextTask, text_learner, text_task
from engines.loading import set_threads
from protocol.accounts import Account
from protocol.config import AdamWConfig, OptimizerConfig, ScheduleConfig
from protocol.encoding import canonical_json, sha256_hex
from trainer.model.sharding import Placement

Progress = Callable[[str], None]
RUNS = Path(__file__).parent / "results" / "diloco_runs.jsonl"
WORKERS = [str(Account.from_key(bytes([number + 1]) * 32).address) for number in range(4)]
SEEDS = (1, 2, 3)
# The defaults of DiLoCo's paper for a run of this length; admission as among strangers.
OUTER, ADMISSION = OuterConfig(learning_rate=0.7, momentum=0.9), AdmissionConfig()


@dataclass(frozen=True)
class Scale:
    """Inner steps before and after the common checkpoint, tokens of a worker's batch, held-out documents, values of
    H."""

    warmup: int = 400
    steps: int = 400
    tokens: int = 1024
    heldout: int = 64
    inner_steps: tuple[int, ...] = (10, 50, 100)


QUICK = Scale(warmup=10, steps=20, tokens=256, heldout=8, inner_steps=(5, 10))


def write_docstrings(path: Path) -> Path:
    """Write the docstrings of the standard library's top-level modules as JSON lines."""
    modules = sorted(Path(ast.__file__).parent.glob("*.py"))
    nodes = [node for module in modules for node in ast.walk(ast.parse(module.read_bytes()))]
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef)
    texts = [ast.get_docstring(node) or "" for node in nodes if isinstance(node, documented)]
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts if len(text) >= 200))
    return path


class Bench:
    """One seed: the text, and the model that its runs begin from."""

    def __init__(self, folder: Path, seed: int, scale: Scale) -> None:
        self.scale, self.seed, self._folder = scale, seed, folder
        self._files = (write_docstrings(folder / "docstrings.jsonl"),)
        self._model = save_random_demo(folder / f"random-{seed}", (), seed)
        self._corpus: Corpus = text_corpus(self._config(1))
        tasks = self._tasks(self._run(1, "float32"), scale.warmup, 1)
        self._synchronised(tasks[0], scale.warmup)
        self._model = tasks[0].learner.policy.export(folder / f"begun-{seed}")

    def _config(self, steps: int) -> TextTaskConfig:
        rate = AdamWConfig(learning_rate=1e-3, beta1=0.9, beta2=0.95, weight_decay=0.1)
        schedule = ScheduleConfig(warmup_updates=min(20, steps // 4), decay_share=0.5, final_share=0.0)
        return TextTaskConfig(
            files=self._files, dtype="float32", heldout=self.scale.heldout, updates=steps,
            optimizer=OptimizerConfig(method=rate, schedule=schedule), batch_tokens=self.scale.tokens,
            sequence_tokens=256,
        )  # fmt: skip

    def _run(self, inner_steps: int, mode: Mode) -> DilocoRun:
        settings = DilocoConfig(inner_steps=inner_steps, mode=mode, shards=4, outer=OUTER, admission=ADMISSION)
        seed = sha256_hex(str(self.seed).encode())
        return DilocoRun(
            name="bench", coordinator=WORKERS[0], workers=tuple(sorted(WORKERS)), seed=seed, settings=settings
        )

    def _tasks(self, run: DilocoRun, steps: int, count: int) -> list[TextTask]:
        config = self._config(steps)
        learners = [text_learner(config, self._model, Placement()) for _ in range(count)]
        return [text_task(config, self._model, self._corpus, run, learner) for learner in learners]

    def _share(self, worker: str, step: int) -> DataShare:
        return DataShare(sha256_hex(str(self.seed).encode()), worker, tuple(sorted(WORKERS)), step=step)

    def _synchronised(self, task: TextTask, steps: int) -> None:
        """Train one model on the batches of all workers together."""
        cursors = dict.fromkeys(WORKERS, Cursor())
        for step in range(steps):
            examples = []
            for worker in WORKERS:
                batch, cursors[worker] = task.next_batch(cursors[worker], self._share(worker, step))
                examples += batch
            task.update(examples, step)

    def synchronised(self) -> dict[str, Any]:
        """Train by data parallelism. `bytes`: that a worker sends and receives in ring all-reduces of float32."""
        (task,) = self._tasks(self._run(1, "float32"), self.scale.steps, 1)
        self._synchronised(task, self.scale.steps)
        size = OuterState.start(task.weights()).layout.size
        ring = 2 * 2 * (len(WORKERS) - 1) / len(WORKERS) * 4 * size * self.scale.steps
        return {"loss": task.metrics()["heldout_loss"], "bytes": ring, "parameters": size}

    def diloco(self, inner_steps: int, mode: Mode) -> dict[str, Any]:
        """Train by DiLoCo. `bytes`: that a worker sends and receives, on average."""
        run, steps = self._run(inner_steps, mode), self.scale.steps
        tasks = dict(zip(WORKERS, self._tasks(run, steps, len(WORKERS)), strict=True))
        state = OuterState.start(tasks[WORKERS[0]].weights())
        errors: dict[str, Any] = dict.fromkeys(WORKERS)
        sent = excluded = 0
        for step in range(steps // inner_steps):
            expected = Expected(run, step, state.digest.hex(), state.layout)
            files: dict[str, bytes] = {}
            contributions = {}
            for worker, task in tasks.items():
                task.load(state.weights)
                for number in range(inner_steps):
                    task.train(self._share(worker, step), number)
                inner = task.weights()
                gradient = {name: value - inner[name] for name, value in state.weights.items()}
                payload, errors[worker] = encode_payload(state, gradient, expected, worker, errors[worker])
                entries = [ShardEntry(sha256=sha256_hex(shard), size=len(shard)) for shard in payload]
                files |= zip((entry.sha256 for entry in entries), payload, strict=True)
                contributions[worker] = Contribution(
                    run=run.digest, worker=worker, step=step, base=expected.base, inner_steps=inner_steps, tokens=1,
                    mode=mode, shards=entries,
                )  # fmt: skip
                sent += sum(map(len, payload))
            after, admitted = settle(Payloads(state, expected, contributions, lambda entry: files[entry.sha256]))  # noqa: B023
            assert after is not None, admitted.excluded
            state, excluded = after, excluded + len(admitted.excluded)
        task.load(state.weights)
        return {"loss": task.metrics()["heldout_loss"], "bytes": float(sent), "excluded": excluded}


def plans(scale: Scale) -> dict[str, tuple[int, Mode] | None]:
    """Return H and mode of each run by its name; None for data parallelism."""
    float32: dict[str, tuple[int, Mode] | None] = {f"h{steps}": (steps, "float32") for steps in scale.inner_steps}
    longest = scale.inner_steps[-1]
    return {"dp": None, **float32, f"h{longest}-int8": (longest, "int8"), f"h{longest}-sparse": (longest, "sparse")}


def run(quick: bool, progress: Progress, resume: bool = False, seconds: int | None = None) -> dict[str, Any]:
    """Return `loss_gap` and `bytes_ratio` by the name of the run, and all runs."""
    set_threads(1)
    began, scale = time.monotonic(), QUICK if quick else Scale()
    plan = sha256_hex(canonical_json([asdict(scale), sys.version_info[:3]]))
    rows = [] if quick else [row for row in kept(RUNS, resume) if row["plan"] == plan]
    for seed in SEEDS[:1] if quick else SEEDS:
        missing = [name for name in plans(scale) if not any((r["seed"], r["name"]) == (seed, name) for r in rows)]
        with TemporaryDirectory(prefix="muster-diloco-") as folder:
            bench = Bench(Path(folder), seed, scale) if missing else None
            for name in missing:
                if bench is None or (seconds is not None and time.monotonic() - began > seconds):
                    break
                chosen, started = plans(scale)[name], time.process_time()
                figures = bench.synchronised() if chosen is None else bench.diloco(*chosen)
                rows.append(
                    {"seed": seed, "name": name, "plan": plan, **figures, "cpu_s": time.process_time() - started}
                )
                progress(f"seed {seed} {name}: loss {figures['loss']:.4f}, {figures['bytes'] / 1e6:.1f} MB")
                if not quick:
                    keep(RUNS, rows[-1])
    return summary(rows, scale)


def summary(rows: Sequence[dict[str, Any]], scale: Scale) -> dict[str, Any]:
    """Compare every run with data parallelism of the same seed."""
    base = {row["seed"]: row for row in rows if row["name"] == "dp"}
    gaps: dict[str, dict[str, float]] = {}
    ratios: dict[str, float] = {}
    for row in rows:
        if row["name"] != "dp" and row["seed"] in base:
            dp = base[row["seed"]]
            gaps.setdefault(row["name"], {})[str(row["seed"])] = round(row["loss"] / dp["loss"] - 1, 5)
            ratios[row["name"]] = round(dp["bytes"] / row["bytes"], 1)
    worst = {name: max(seeds.values()) for name, seeds in gaps.items()}
    longest = f"h{scale.inner_steps[-1]}-"
    return {
        "loss_gap": {name.removeprefix("h"): gap for name, gap in worst.items()},
        "bytes_ratio": {name.removeprefix(longest): ratio for name, ratio in ratios.items()},
        "gaps_by_seed": gaps, "scale": asdict(scale), "runs": {f"{r['seed']} {r['name']}": r for r in rows},
    }  # fmt: skip
