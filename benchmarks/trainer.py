"""Our training step against TRL's GRPO step: the same model, long-tailed rollouts, threads, precision, one run.

`python -m benchmarks trainer [--quick]`; TRL comes from `make peers`. Each case is a process of its own, the two in
turn. Both use activation checkpointing, TRL's default; its trainer is given our rollouts, padded as it pads its own,
and is otherwise left alone. Processor seconds of one thread.

Keys: tokens_ratio (tokens per second, ours over TRL's, medians), memory_ratio (peak of resident memory, ours over
TRL's), packing_waste (share of eight ranks' time spent waiting, by estimated work), mfu (of our step, over what plain
matrix products reach), `runs`, and `memory` (peaks at several sizes of row and of head chunk). A quick run has one
problem and one step.
"""

import json
import os
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import psutil
import torch
from torch.nn.utils.rnn import pad_sequence

from benchmarks.support.rollouts import save_random
from engines.loading import set_threads
from engines.torch_process import torch_environment
from protocol.config import AdamWConfig, OptimizerConfig, TrainConfig
from protocol.models import save_byte_tokenizer
from trainer.config import MemoryConfig
from trainer.data.batch import Group, TrainRollout, WorkEstimate, idle_share, plan_rows
from trainer.learner import Learner
from trainer.model.sharding import Placement
from trainer.reports.bench import full_row, matrix_flops

ROOT = Path(__file__).parents[1]
PEER = ROOT / "build" / "peers-trl"
RANKS = 8
# (row tokens, MiB of logits at a time); the last is more than any row's: the whole logits at once.
SIZES = ((1024, 8), (2048, 8), (4096, 8), (4096, 64), (4096, 1024))


@dataclass(frozen=True)
class Mix:
    """`groups` problems with `samples` rollouts each. Lengths in tokens: prompts uniform, outputs log-normal around
    `median` and cut at `longest`, as reasoning models write them: many short, some very long."""

    groups: int = 4
    samples: int = 8
    vocabulary: int = 12288
    median: int = 110
    spread: float = 1.0
    longest: int = 768
    seed: int = 5

    def rollouts(self) -> list[Group]:
        dice, groups = random.Random(self.seed), []
        for _ in range(self.groups):
            prompt = self._tokens(dice, dice.randint(24, 72))
            group = []
            for number in range(self.samples):
                length = min(self.longest, 1 + int(self.median * dice.lognormvariate(0.0, self.spread)))
                group.append(TrainRollout(prompt, self._tokens(dice, length), float(number % 2)))
            groups.append(tuple(group))
        return groups

    def _tokens(self, dice: random.Random, count: int) -> tuple[int, ...]:
        return tuple(dice.randrange(3, self.vocabulary) for _ in range(count))


@dataclass(frozen=True)
class CaseSettings:
    """`folder` holds the model in `model`. `steps` are measured after one that is not. `row_tokens` is our packed row,
    `trl_batch` TRL's micro-batch. `one_row`: instead of the mix, a step of one full row."""

    folder: Path
    mix: Mix
    threads: int = 1
    steps: int = 3
    row_tokens: int = 2048
    head_chunk_mib: int = 16
    trl_batch: int = 8
    one_row: bool = False


@dataclass(frozen=True)
class Measured:
    """Processor seconds of each measured step; resident bytes before the first and at most; of a step its real tokens
    and the operations that it needs; operations per second that plain matrix products reach."""

    seconds: list[float]
    before: int
    peak: int
    tokens: int
    flops: float = 0.0
    peak_flops: float = 1.0


def run(quick: bool, progress: Callable[[str], None]) -> dict[str, Any]:
    if not (PEER / "trl").is_dir():
        sys.exit("benchmarks: trainer compares with TRL, which is not there; run `make peers`")
    mix = Mix(groups=1) if quick else Mix()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        save_small_llama(folder / "model", mix.vocabulary)
        settings = CaseSettings(folder, mix, steps=1 if quick else 2)
        runs = [(name, _case(name, settings, progress)) for name in ("ours", "trl") * (1 if quick else 2)]
        memory = []
        for row, chunk in () if quick else SIZES:
            full = replace(settings, row_tokens=row, head_chunk_mib=chunk, steps=1, one_row=True)
            peak = _case("ours", full, progress)
            memory.append({"row_tokens": row, "head_chunk_mib": chunk, "step_mib": peak.peak - peak.before >> 20})
    ours, trl = ([measured for name, measured in runs if name == wanted] for wanted in ("ours", "trl"))
    seconds, theirs = (statistics.median(s for run in many for s in run.seconds) for many in (ours, trl))
    return {
        "tokens_ratio": round(theirs / seconds, 2),
        "memory_ratio": round(max(run.peak for run in ours) / min(run.peak for run in trl), 3),
        "packing_waste": round(packing_waste(), 4),
        "mfu": round(statistics.median(run.flops / run.peak_flops for run in ours) / seconds, 3),
        "tokens": ours[0].tokens,
        "tokens_per_second": {"ours": round(ours[0].tokens / seconds, 1), "trl": round(ours[0].tokens / theirs, 1)},
        "peak_mib": {"ours": ours[0].peak >> 20, "trl": trl[0].peak >> 20},
        "runs": [{"trainer": name} | asdict(measured) for name, measured in runs],
        "memory": memory,
    }


def packing_waste(count: int = 2048, longest: int = 16384, row_tokens: int = 32768) -> float:
    """Of a step of long-tailed sequences with a model as heavy in attention as one of half a billion parameters."""
    dice = random.Random(0)
    lengths = [min(longest, 1 + int(dice.lognormvariate(7.0, 1.2))) for _ in range(count)]
    work = WorkEstimate(1e9, 9e4).of_sequence
    return idle_share(plan_rows(lengths, row_tokens, RANKS, work), lengths, work)


def save_small_llama(
    folder: Path, vocabulary: int, heads: int = 6, kv_heads: int = 2, intermediate: int = 1024, layers: int = 8
) -> None:
    """Write a Llama of random weights, 64 dimensions a head, embeddings tied, with a tokenizer of bytes. By default in
    SmolLM2-135M's proportions, scaled to 19 million parameters."""
    from transformers import LlamaConfig

    config: Any = LlamaConfig(
        vocab_size=vocabulary,
        hidden_size=64 * heads,
        intermediate_size=intermediate,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        max_position_embeddings=4096,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=1,
        pad_token_id=0,
    )
    save_random(config, folder, torch.float32)
    save_byte_tokenizer(folder, ())


def _case(name: str, settings: CaseSettings, progress: Callable[[str], None]) -> Measured:
    environment = os.environ | torch_environment(settings.threads)
    environment["PYTHONPATH"] = os.pathsep.join([str(PEER), str(ROOT)] if name == "trl" else [str(ROOT)])
    document = json.dumps(asdict(settings) | {"folder": str(settings.folder)})
    command = [sys.executable, "-m", "benchmarks.trainer", name, document]
    done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{name} failed:\n{done.stderr[-2000:]}")
    measured = Measured(**json.loads(done.stdout.splitlines()[-1]))
    progress(f"{name}: {measured.tokens} tokens in {measured.seconds} s, peak {measured.peak >> 20} MiB")
    return measured


def measure_ours(settings: CaseSettings) -> Measured:
    """Measure our step, in a process of its own."""
    config = TrainConfig(optimizer=OptimizerConfig(method=AdamWConfig(learning_rate=1e-5)))
    memory = MemoryConfig(
        row_tokens=settings.row_tokens, head_chunk_mib=settings.head_chunk_mib, checkpoint_activations=True
    )
    learner = Learner(settings.folder / "model", config, 1.0, "bfloat16", Placement(memory=memory))
    mix = settings.mix
    groups = full_row(settings.row_tokens, mix.vocabulary) if settings.one_row else mix.rollouts()
    seconds, before = [], int(psutil.Process().memory_info().rss)
    for _ in range(settings.steps + 1):
        start = time.process_time()
        learner.train_step(groups)
        seconds.append(time.process_time() - start)
    lengths, policy = [sample.length for group in groups for sample in group], learner.policy
    peak, flops = 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, policy.work.training(lengths)
    reached = matrix_flops(policy.device, policy.dtype, clock=time.process_time) / settings.threads
    return Measured(seconds[1:], before, peak, sum(lengths), flops, reached)


def measure_trl(settings: CaseSettings) -> Measured:
    """Measure TRL's step, in a process of its own, with TRL on the path."""
    import datasets
    from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback
    from trl import GRPOConfig, GRPOTrainer

    samples = [sample for group in settings.mix.rollouts() for sample in group]
    seconds: list[float] = []

    class GivenRollouts(GRPOTrainer):  # type: ignore[misc]
        def _generate_and_score_completions(self, inputs: Any) -> dict[str, Any]:
            return _padded(samples)

    class Clock(TrainerCallback):
        def on_step_begin(self, *_: Any, **__: Any) -> None:
            self.began = time.process_time()

        def on_step_end(self, *_: Any, **__: Any) -> None:
            seconds.append(time.process_time() - self.began)

    load: Any = AutoModelForCausalLM.from_pretrained
    # TRL's own defaults, except what both trainers share. One update a step, so that TRL skips its pass for the old
    # log-probabilities as we do.
    arguments = GRPOConfig(
        output_dir=str(settings.folder / "trl"),
        per_device_train_batch_size=settings.trl_batch,
        gradient_accumulation_steps=len(samples) // settings.trl_batch,
        num_generations=settings.mix.samples,
        max_completion_length=settings.mix.longest,
        max_steps=settings.steps + 1,
        learning_rate=1e-5,
        beta=0.0,
        delta=4.0,
        bf16=True,
        gradient_checkpointing=True,
        use_cpu=True,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        logging_strategy="no",
    )
    trainer = GivenRollouts(
        model=load(settings.folder / "model", dtype=torch.float32),
        args=arguments,
        reward_funcs=lambda completions, **_: [0.0] * len(completions),
        train_dataset=datasets.Dataset.from_list([{"prompt": "?"}] * len(samples)),
        processing_class=AutoTokenizer.from_pretrained(settings.folder / "model"),
        callbacks=[Clock()],
    )
    before = int(psutil.Process().memory_info().rss)
    trainer.train()
    return Measured(
        seconds[1:],
        before,
        1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss,
        sum(sample.length for sample in samples),
    )


def _padded(samples: list[TrainRollout]) -> dict[str, torch.Tensor]:
    """Prompts padded on the left, completions on the right, all to the longest of the generation batch."""
    padded: dict[str, torch.Tensor] = {}
    for name, side in (("prompt", "left"), ("completion", "right")):
        rows = [torch.tensor(sample.prompt if side == "left" else sample.output) for sample in samples]
        masks = [torch.ones_like(row) for row in rows]
        padded[f"{name}_ids"] = pad_sequence(rows, batch_first=True, padding_side=side)
        padded[f"{name}_mask"] = pad_sequence(masks, batch_first=True, padding_side=side)
    advantages = torch.tensor([sample.reward - 0.5 for sample in samples])
    return padded | {"advantages": advantages, "num_items_in_batch": padded["completion_mask"].sum()}


if __name__ == "__main__":
    document = json.loads(sys.argv[2])
    case = CaseSettings(**document | {"folder": Path(document["folder"]), "mix": Mix(**document["mix"])})
    set_threads(case.threads)
    print(json.dumps(asdict(measure_ours(case) if sys.argv[1] == "ours" else measure_trl(case))))
