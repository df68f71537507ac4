"""The tiny model, taught from nothing to answer tasks of benchmarks/genesys_rows.py in the form that is scored."""

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import Any

from engines.loading import set_threads
from protocol.models import load_tokenizer
from protocol.training import MuonConfig, OptimizerConfig, ScheduleConfig
from trainer.base_model import fresh_model
from trainer.model.policy import Policy
from trainer.sft import Conversation, ConversationEncoder, Message, SftLearner

BATCH, RATE = 32, 4e-3
LONGEST = 60
"""Bytes of the longest answer that it is taught."""


def teach(rows: Sequence[dict[str, Any]], folder: Path, updates: int, progress: Callable[[str], None]) -> None:
    """Write a model to `folder` that has imitated the rows' answers for so many updates."""
    set_threads(1)
    with tempfile.TemporaryDirectory() as temporary:
        fresh = fresh_model(Path(temporary), 7)
        encoder, draw = ConversationEncoder(load_tokenizer(fresh), chat_template=False), Random(7)
        short = [row for row in rows if len(row["gold_standard_solution"].encode()) <= LONGEST]
        examples = [encoder.encode(_conversation(row)) for row in short]
        policy = Policy(fresh)
        schedule = ScheduleConfig(warmup_updates=0, decay_share=0.4, final_share=0.0)
        method = MuonConfig(learning_rate=RATE, weight_decay=0.0, beta2=0.999)
        learner = SftLearner(policy, OptimizerConfig(method=method, schedule=schedule), updates)
        for number in range(updates):
            metrics = learner.update(draw.sample(examples, BATCH))
            if number % 50 == 49 or number + 1 == updates:
                progress(f"taught: update {number + 1} of {updates}, loss {metrics.loss:.3f}")
        folder.parent.mkdir(parents=True, exist_ok=True)
        policy.export(folder)


def _conversation(row: dict[str, Any]) -> Conversation:
    asked = Message(role="user", content=f"{row['prompt']}\nAnswer: ")
    return Conversation(messages=(asked, Message(role="assistant", content=row["gold_standard_solution"])))
