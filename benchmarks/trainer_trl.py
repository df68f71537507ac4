"""TRL's GRPO step on given rollouts: `python -m benchmarks.trainer_trl SETTINGS`, with TRL on the path.

Its own trainer, unchanged but for the rollouts, which are padded as it pads those that it generates. Prints the same
JSON object as benchmarks/trainer_case.py.
"""

import json
import sys
import time
from pathlib import Path
from typing import Any

import torch
from torch.nn.utils.rnn import pad_sequence

from benchmarks.trainer_case import CaseSettings, Measured, peak_bytes, resident_bytes
from engines.loading import set_threads
from trainer.batch import TrainRollout


def measure(settings: CaseSettings) -> Measured:
    import datasets
    from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback
    from trl import GRPOTrainer

    set_threads(settings.threads)
    samples = [one for group in settings.mix.rollouts() for one in group]
    seconds: list[float] = []

    class GivenRollouts(GRPOTrainer):  # type: ignore[misc]
        def _generate_and_score_completions(self, inputs: Any) -> dict[str, Any]:
            return padded(samples)

    class Clock(TrainerCallback):
        def on_step_begin(self, *_: Any, **__: Any) -> None:
            self.began = time.process_time()

        def on_step_end(self, *_: Any, **__: Any) -> None:
            seconds.append(time.process_time() - self.began)

    load: Any = AutoModelForCausalLM.from_pretrained
    trainer = GivenRollouts(
        model=load(settings.folder / "model", dtype=torch.float32),
        args=arguments(settings, len(samples)),
        reward_funcs=lambda completions, **_: [0.0] * len(completions),
        train_dataset=datasets.Dataset.from_list([{"prompt": "?"}] * len(samples)),
        processing_class=AutoTokenizer.from_pretrained(settings.folder / "model"),
        callbacks=[Clock()],
    )
    before = resident_bytes()
    trainer.train()
    return Measured(seconds[1:], before, peak_bytes(), sum(one.length for one in samples))


def arguments(settings: CaseSettings, samples: int) -> Any:
    """TRL's own defaults but for what both trainers share. One update a step, so that TRL skips its pass for the old
    log-probabilities as we do."""
    from trl import GRPOConfig

    return GRPOConfig(
        output_dir=str(settings.folder / "trl"),
        per_device_train_batch_size=settings.trl_batch,
        gradient_accumulation_steps=samples // settings.trl_batch,
        num_generations=settings.mix.samples,
        max_completion_length=settings.mix.longest,
        max_steps=settings.steps + 1,
        learning_rate=1e-5,
        beta=0.0,
        delta=4.0,
        bf16=settings.dtype == "bfloat16",
        gradient_checkpointing=settings.checkpointing,
        use_cpu=True,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        logging_strategy="no",
    )


def padded(samples: list[TrainRollout]) -> dict[str, torch.Tensor]:
    """Prompts padded on the left, completions on the right, all to the longest of the generation batch."""
    prompts = [torch.tensor(one.prompt) for one in samples]
    outputs = [torch.tensor(one.output) for one in samples]

    def sides(rows: list[torch.Tensor], side: str) -> tuple[torch.Tensor, torch.Tensor]:
        ones = [torch.ones_like(row) for row in rows]
        return (
            pad_sequence(rows, batch_first=True, padding_side=side),
            pad_sequence(ones, batch_first=True, padding_side=side),
        )

    prompt_ids, prompt_mask = sides(prompts, "left")
    completion_ids, completion_mask = sides(outputs, "right")
    return {
        "prompt_ids": prompt_ids,
        "prompt_mask": prompt_mask,
        "completion_ids": completion_ids,
        "completion_mask": completion_mask,
        "advantages": torch.tensor([one.reward - 0.5 for one in samples]),
        "num_items_in_batch": completion_mask.sum(),
    }


if __name__ == "__main__":
    print(json.dumps(measure(CaseSettings.load(Path(sys.argv[1]))).document()))
