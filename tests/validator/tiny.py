"""A tiny random model, honest files made with it, and a verifier: everything but the chain is real."""

from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import torch

from benchmarks.support.offline_pool import work_of as work_of
from engines.hf import TransformersEngine
from environments.pool import PoolEnvironments
from protocol.config import PoolConfig
from protocol.models import save_byte_tokenizer
from protocol.seeds import AUDIT_EVERYTHING, Work
from protocol.verdict import Verdict
from tests.validator.world import CONFIG as CONFIG
from trainer.model.tiny_model import tiny_qwen2
from validator.judging.checks import SubmissionFacts
from validator.judging.pipeline import judge
from worker.produce import Produced, Producer


@cache
def model_folder(seed: int = 0) -> Path:
    """A random model that is sure of some tokens, and whose completions end now and then."""
    from transformers import Qwen2ForCausalLM

    folder = Path(mkdtemp(prefix="muster-tiny-"))
    size = save_byte_tokenizer(folder, ["<think>", "</think>"])
    torch.manual_seed(seed)
    model: Any = Qwen2ForCausalLM(tiny_qwen2(size, size - 2, size - 1))  # type: ignore[no-untyped-call]
    with torch.no_grad():
        model.get_input_embeddings().weight.mul_(2.0)
        # An EOS that is about as likely as it is in short answers: a few percent at every token.
        states = model.model(torch.randint(0, 256, (16, 32))).last_hidden_state.flatten(0, 1)
        wanted = torch.full((len(states), 1), 3.0)
        model.get_input_embeddings().weight[size - 2] = torch.linalg.lstsq(states, wanted).solution.squeeze(1)
    model.save_pretrained(folder)
    return folder


@cache
def engine(number: int = 0) -> TransformersEngine:
    """Engine 0 belongs to the worker, 1 to the verifier, whose batches differ."""
    made = TransformersEngine(max_batch=(8, 3)[number])
    made.load(model_folder())
    return made


@cache
def environment() -> PoolEnvironments:
    return PoolEnvironments.of(CONFIG, model_folder())


def facts(work: Work, made: Produced, sequence: int = 5, audit_rate: int = AUDIT_EVERYTHING) -> SubmissionFacts:
    return SubmissionFacts(work, made.commitment, sequence, b"\x09" * 32, audit_rate)


def producer() -> Producer:
    made = Producer(CONFIG, engine(0))
    made.load(model_folder())
    return made


@cache
def honest(counter: int = 0) -> Produced:
    return producer().make(work_of(counter))


def verdict_on(made: Produced, work: Work, config: PoolConfig = CONFIG, **changes: int) -> Verdict:
    return judge(facts(work, made, **changes), made.data, config, environment(), engine(1))
