"""Where a run's first weights come from: the warmed-up tiny model from the cache, a folder, or a Hugging Face id.

The demo's tiny Qwen2 learns worked sums from nothing, in about forty CPU-seconds of supervised fine-tuning. A second
phase, mostly blurted answers, makes working a sum out what the model does only sometimes: what reinforcement learning
then finds and strengthens."""

import dataclasses
import importlib.metadata
import json
import logging
import random
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
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
from trainer.sft import Conversation, ConversationEncoder, Message, Part, SftLearner

log = logging.getLogger("muster.trainer")
Progress = Callable[[str], None]
_PROGRESS_SECONDS = 3.0
_UNCLIPPED = 1e9
REVISION = 3  # raise it when the warm-up's code changes what comes out
PACKAGES = ("torch", "transformers", "tokenizers", "reasoning_gym")
BUILD_SECONDS = 1800.0


def worked_turns(task: InTurns, problem: Problem, prompt: str) -> tuple[Message, ...]:
    """Return the conversation of somebody who opens both boxes. The tool's answers are read and not learned."""
    messages, replies = [Message(role="user", content=prompt)], list[str]()
    for box in problem.metadata["asked"]:
        replies.append(f"[{box}]")
        reply = task.reply(problem, replies) or ""
        messages += [Message(role="assistant", content=replies[-1]), Message(role="user", content=reply)]
    return (*messages, Message(role="assistant", content=f"{END_OF_THOUGHT}{problem.answer}"))


def conversation(task: Environment, seed: int, index: int, worked_share: float) -> Conversation:
    """Return example `index` of warm-up `seed`: worked with probability `worked_share`, else a blurted answer, of which
    only the decision not to think is learned: guessed digits would cost the arithmetic that was just taught."""
    (number,) = words(tagged_hash("muster/warmup/1", seed, index), 1)
    problem = task.problem(number)
    asked = Message(role="user", content=prompt_text(tiny_model_config(), problem, 0))
    if random.Random(number).random() >= worked_share:
        parts = (Part(text=END_OF_THOUGHT), Part(text=problem.answer, learned=False))
        return Conversation(messages=(asked, Message(role="assistant", content=parts)))
    if isinstance(task, InTurns):
        return Conversation(messages=worked_turns(task, problem, asked.text))
    answer = f"{worked_sum(problem)}{END_OF_THOUGHT}{problem.answer}"
    return Conversation(messages=(asked, Message(role="assistant", content=answer)))


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


@dataclass(frozen=True)
class Recipe:
    """Steps, batch and learning rates of the warm-up; part of the cache key."""

    worked_steps: int = 360
    mixed_steps: int = 50
    worked_share: float = 0.3
    batch: int = 64
    worked_lr: float = 4e-3
    mixed_lr: float = 3e-4


def warm_up(folder: Path, task: Environment, seed: int, recipe: Recipe, progress: Progress = log.info) -> None:
    """Train the tiny model from `seed` and write a Hugging Face folder (fp32) to `folder`: first quickly on worked
    examples alone, then gently towards the wanted share of thoughts, without the momentum that would overshoot to
    never."""
    set_threads(1)
    transformers_logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    quick = MuonConfig(learning_rate=recipe.worked_lr, weight_decay=0.0, beta2=0.999)
    gentle = AdamWConfig(learning_rate=recipe.mixed_lr, weight_decay=0.0)
    worked, steps = recipe.worked_steps, recipe.worked_steps + recipe.mixed_steps
    last_progress = 0.0
    with tempfile.TemporaryDirectory(prefix="muster-warmup-") as temporary:
        untaught = fresh_model(Path(temporary), seed)
        policy = Policy(untaught)
        encoder = ConversationEncoder(load_tokenizer(untaught), chat_template=False)
        phases: tuple[tuple[range, float, AdamWConfig | MuonConfig, float], ...] = (
            (range(worked), 1.0, quick, 0.4),
            (range(worked, steps), recipe.worked_share, gentle, 0.5),
        )
        for phase, share, method, decay_share in phases:
            schedule = ScheduleConfig(warmup_updates=0, decay_share=decay_share, final_share=0.0)
            optimizer = OptimizerConfig(method=method, schedule=schedule, grad_clip=_UNCLIPPED)
            learner = SftLearner(policy, optimizer, len(phase))
            for step in phase:
                numbers = range(step * recipe.batch, (step + 1) * recipe.batch)
                examples = [encoder.encode(conversation(task, seed, number, share)) for number in numbers]
                metrics = learner.update(examples)
                if step + 1 == steps or time.monotonic() - last_progress > _PROGRESS_SECONDS:
                    last_progress = time.monotonic()
                    progress(f"warming up the base model: step {step + 1} of {steps}, loss {metrics.loss:.3f}")
        policy.export(folder)


def fresh_model(folder: Path, seed: int, **sizes: int) -> Path:
    """Write an untrained tiny model with its tokenizer. `sizes` replace those of its configuration."""
    save_byte_tokenizer(folder, PHRASES)
    tokenizer: Any = load_tokenizer(folder)
    library: Any = transformers
    ends = {"eos_token_id": tokenizer.eos_token_id, "pad_token_id": tokenizer.pad_token_id}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = library.Qwen2ForCausalLM(tiny_qwen2(len(tokenizer), *ends.values(), **sizes))
    model.generation_config = library.GenerationConfig(**ends)
    model.save_pretrained(str(folder))
    return folder


def base_model(
    model: ModelConfig, task: EnvironmentConfig, seed: int, cache: Path | None = None, progress: Progress = log.info
) -> Path:
    """Return a local Hugging Face folder with the weights of policy step 0; never changed afterwards.

    `model.source` is a folder, a Hugging Face id (fetched into its own cache), or `muster/tiny-qwen2`, which is warmed
    up from `seed` once and then kept in `cache` (default: the user's cache folder). Raises ConfigError."""
    if model.source == TINY_SOURCE:
        return warmed_up(task, seed, cache or user_cache("models"), progress)
    return model_folder(model.source)


def warmed_up(
    task: EnvironmentConfig, seed: int, cache: Path, progress: Progress = log.info, recipe: Recipe = Recipe()
) -> Path:
    """Return the tiny model of a seed and task, from `cache` if it is intact there, else trained now."""
    key = cache_key(task, seed, recipe)
    folder, record, lock = cache / key, cache / f"{key}.json", cache / f"{key}.lock"
    with explained(f"write to the cache {cache}", "set XDG_CACHE_HOME"):
        cache.mkdir(parents=True, exist_ok=True)
    with locked(lock, f"another process that makes the base model ({lock})", BUILD_SECONDS):
        if folder.is_dir():
            with suppress(OSError, ValueError):
                expected = json.loads(record.read_bytes())
                if expected and file_digests(folder) == expected:
                    progress(f"base model for seed {seed}: from the cache")
                    return folder
            progress(f"the cached base model {folder} is damaged; making it again")
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
