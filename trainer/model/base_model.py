"""Where a run's first weights come from: the warmed-up tiny model from the cache, a folder, or a Hugging Face id.

The demo's base model is a tiny Qwen2 that learns from nothing to imitate worked sums, in about forty CPU-seconds. The
first phase teaches it to work a sum out. The second, mostly blurted answers, makes working it out a habit that the
model shows only sometimes: what reinforcement learning then finds and strengthens. Both are supervised fine-tuning
(`trainer/sft.py`) on conversations made from a seed."""

import dataclasses
import importlib.metadata
import json
import logging
import random
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers.utils import logging as transformers_logging

from engines.loading import set_threads
from environments.base import Environment, InTurns, Problem
from environments.prompts import prompt_text
from environments.registry import load_environment
from protocol.config import AdamWConfig, EnvironmentConfig, ModelConfig, MuonConfig, OptimizerConfig, ScheduleConfig
from protocol.encoding import canonical_json, sha256_hex, tagged_hash, words
from protocol.errors import ConfigError
from protocol.files import explained, file_digests, locked, user_cache, write_atomic, write_folder
from protocol.models import load_tokenizer, save_byte_tokenizer
from trainer.model.policy import Policy, model_folder
from trainer.model.tiny_model import END_OF_THOUGHT, PHRASES, TINY_SOURCE, tiny_model_config, tiny_qwen2
from trainer.sft import Conversation, ConversationEncoder, Example, Message, Part, SftLearner


def worked_turns(task: InTurns, problem: Problem, prompt: str) -> tuple[Message, ...]:
    """Return the conversation of somebody who opens both boxes. The tool's answers are between the turns as they are in
    rollouts without a chat template, and are not learned."""
    messages, replies = [Message(role="user", content=prompt)], list[str]()
    for box in problem.metadata["asked"]:
        replies.append(f"[{box}]")
        reply = task.reply(problem, replies) or ""
        messages += [Message(role="assistant", content=replies[-1]), Message(role="user", content=reply)]
    return (*messages, Message(role="assistant", content=f"{END_OF_THOUGHT}{problem.answer}"))


@dataclass(frozen=True)
class WorkedExample:
    """A problem with the completion to imitate (without EOS)."""

    problem: Problem
    completion: str
    worked: bool


def example(task: Environment, seed: int, index: int, worked_share: float) -> WorkedExample:
    """Return example `index` of warm-up `seed`: worked with probability `worked_share`, else a blurted answer."""
    (number,) = words(tagged_hash("muster/warmup/1", seed, index), 1)
    problem = task.problem(number)
    worked = random.Random(number).random() < worked_share
    thought = worked_sum(problem) if worked and not isinstance(task, InTurns) else ""
    return WorkedExample(problem, f"{thought}{END_OF_THOUGHT}{problem.answer}", worked)


def conversation(task: Environment, seed: int, index: int, worked_share: float) -> Conversation:
    """Return example `index` as a conversation.

    A blurted answer teaches only the decision not to think: learning guessed digits by heart would cost the arithmetic
    that the worked examples have just taught.
    """
    answer = example(task, seed, index, worked_share)
    asked = Message(role="user", content=prompt_text(tiny_model_config(), answer.problem, 0))
    if answer.worked and isinstance(task, InTurns):
        return Conversation(messages=worked_turns(task, answer.problem, asked.text))
    if answer.worked:
        return Conversation(messages=(asked, Message(role="assistant", content=answer.completion)))
    decision, _, guess = answer.completion.partition(END_OF_THOUGHT)
    parts = (Part(text=decision + END_OF_THOUGHT), Part(text=guess, learned=False))
    return Conversation(messages=(asked, Message(role="assistant", content=parts)))


def worked_sum(problem: Problem) -> str:
    """Work the sum out from left to right, one operation a line: `4 + 7 - 3` gives `4+7=11`, `11-3=8`."""
    parts = str(problem.metadata.get("expression", "")).split()
    try:
        total, lines = int(parts[0]), []
        for operator, term in zip(parts[1::2], parts[2::2], strict=True):
            result = total + int(term) if operator == "+" else total - int(term)
            lines.append(f"{total}{operator}{term}={result}")
            total = result
    except (IndexError, ValueError):
        raise ConfigError(
            "the warm-up can only teach sums of integers", "use reasoning_gym/chain_sum, or name a model folder"
        ) from None
    return "\n".join(lines)


log = logging.getLogger("muster.trainer")
Progress = Callable[[str], None]
PROGRESS_SECONDS = 3.0
_UNCLIPPED = 1e9


@dataclass(frozen=True)
class Recipe:
    """Steps, batch and learning rates of the warm-up; part of the cache key."""

    worked_steps: int = 360
    mixed_steps: int = 50
    worked_share: float = 0.3
    batch: int = 64
    worked_lr: float = 4e-3
    mixed_lr: float = 3e-4

    @property
    def steps(self) -> int:
        return self.worked_steps + self.mixed_steps


@dataclass(frozen=True)
class Phase:
    """Steps first … last−1 with a fraction of worked examples; the learning rate is constant, then falls to zero."""

    first: int
    last: int
    worked_share: float
    optimizer: OptimizerConfig


def warm_up(
    folder: Path,
    task: Environment,
    seed: int,
    recipe: Recipe,
    progress: Progress = log.info,
    fresh: Callable[[Path, int], Path] | None = None,
) -> None:
    """Train the tiny model, or what `fresh` makes in a folder, from `seed` and write a Hugging Face folder (fp32) to
    `folder`."""
    set_threads(1)
    transformers_logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    with tempfile.TemporaryDirectory(prefix="muster-warmup-") as temporary:
        untaught = (fresh or fresh_model)(Path(temporary), seed)
        policy = Policy(untaught)
        encoder = ConversationEncoder(load_tokenizer(untaught), chat_template=False)
        _train(policy, encoder, task, seed, recipe, progress)
        policy.export(folder)


def fresh_model(folder: Path, seed: int) -> Path:
    """Write an untrained tiny model with its tokenizer."""
    save_byte_tokenizer(folder, PHRASES)
    tokenizer: Any = load_tokenizer(folder)
    config = tiny_qwen2(len(tokenizer), tokenizer.eos_token_id, tokenizer.pad_token_id)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        make: Any = transformers.Qwen2ForCausalLM
        model = make(config)
    settings: Any = transformers.GenerationConfig
    model.generation_config = settings(eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id)
    model.save_pretrained(str(folder))
    return folder


def _train(
    policy: Policy, encoder: ConversationEncoder, task: Environment, seed: int, recipe: Recipe, progress: Progress
) -> None:
    last_progress = 0.0
    for phase in _phases(recipe):
        learner = SftLearner(policy, phase.optimizer, phase.last - phase.first)
        for step in range(phase.first, phase.last):
            metrics = learner.update(list(_batch(encoder, task, seed, step, phase, recipe)))
            if step + 1 == recipe.steps or time.monotonic() - last_progress > PROGRESS_SECONDS:
                last_progress = time.monotonic()
                progress(f"warming up the base model: step {step + 1} of {recipe.steps}, loss {metrics.loss:.3f}")


def _batch(
    encoder: ConversationEncoder, task: Environment, seed: int, step: int, phase: Phase, recipe: Recipe
) -> Iterator[Example]:
    for number in range(step * recipe.batch, (step + 1) * recipe.batch):
        yield encoder.encode(conversation(task, seed, number, phase.worked_share))


def _phases(recipe: Recipe) -> Iterator[Phase]:
    """First only worked examples, quickly; then gently towards the wanted share of thoughts, without momentum from
    before: the swing from always to sometimes would otherwise overshoot to never."""
    quick = MuonConfig(learning_rate=recipe.worked_lr, weight_decay=0.0, beta2=0.999)
    gentle = AdamWConfig(learning_rate=recipe.mixed_lr, weight_decay=0.0)
    yield Phase(0, recipe.worked_steps, 1.0, _rates(quick, 0.4))
    yield Phase(recipe.worked_steps, recipe.steps, recipe.worked_share, _rates(gentle, 0.5))


def _rates(method: AdamWConfig | MuonConfig, decay_share: float) -> OptimizerConfig:
    schedule = ScheduleConfig(warmup_updates=0, decay_share=decay_share, final_share=0.0)
    return OptimizerConfig(method=method, schedule=schedule, grad_clip=_UNCLIPPED)


REVISION = 2  # raise it when the warm-up's code changes what comes out
PACKAGES = ("torch", "transformers", "tokenizers", "reasoning_gym")
BUILD_SECONDS = 1800.0


def base_model(
    model: ModelConfig,
    task: EnvironmentConfig,
    seed: int,
    cache: Path | None = None,
    progress: Progress = log.info,
) -> Path:
    """Return a local Hugging Face folder with the weights of policy step 0; never changed afterwards.

    `model.source` is a folder, a Hugging Face id (fetched into its own cache), or `muster/tiny-qwen2`, which is warmed
    up from `seed` once and then kept in `cache` (default: the user's cache folder). Raises ConfigError.
    """
    if model.source == TINY_SOURCE:
        return warmed_up(task, seed, cache or user_cache("models"), progress)
    return model_folder(model.source)


def warmed_up(
    task: EnvironmentConfig,
    seed: int,
    cache: Path,
    progress: Progress = log.info,
    recipe: Recipe | None = None,
) -> Path:
    """Return the tiny model of a seed and task, from `cache` if it is intact there, else trained now (about 40
    CPU-seconds)."""
    recipe = recipe or Recipe()
    key = cache_key(task, seed, recipe)
    folder, record = cache / key, cache / f"{key}.json"
    with explained(f"write to the cache {cache}", "set XDG_CACHE_HOME"):
        cache.mkdir(parents=True, exist_ok=True)
    lock = cache / f"{key}.lock"
    with locked(lock, f"another process that makes the base model ({lock})", BUILD_SECONDS):
        if _intact(folder, record, progress):
            progress(f"base model for seed {seed}: from the cache")
            return folder
        loaded = load_environment(task)
        write_folder(folder, lambda aside: warm_up(aside, loaded, seed, recipe, progress))
        write_atomic(record, canonical_json(file_digests(folder)))
    return folder


def cache_key(task: EnvironmentConfig, seed: int, recipe: Recipe) -> str:
    """Hash everything that decides the weights: recipe, seed, task (whichever of its problems work is drawn from),
    tokenizer phrases, library versions."""
    versions = {name: importlib.metadata.version(name) for name in PACKAGES}
    whole = task.model_copy(update={"problems": None}).model_dump(mode="json", exclude={"curriculum"})
    parts = [REVISION, dataclasses.asdict(recipe), seed, whole, list(PHRASES), versions]
    return f"tiny-{sha256_hex(canonical_json(parts))[:24]}"


def _intact(folder: Path, record: Path, progress: Progress) -> bool:
    if not folder.is_dir():
        return False
    try:
        expected = json.loads(record.read_bytes())
        if expected and file_digests(folder) == expected:
            return True
    except (OSError, ValueError):
        pass
    progress(f"the cached base model {folder} is damaged; making it again")
    return False
