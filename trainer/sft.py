"""Supervised fine-tuning: conversations to tokens, updates on what the assistant says, and a run from a configuration.
Every rank goes through the same conversations in the same order."""

import logging
import math
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, Literal

import torch
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from environments.row_formats import json_rows
from protocol.config import OptimizerConfig, TrainConfig
from protocol.encoding import canonical_json, parse_json, sha256_hex
from protocol.errors import ConfigError, IntegrityError, first_problem
from protocol.files import drop_old, explained, file_sha256, remove_leftovers
from protocol.models import load_tokenizer
from trainer.checkpoint import LearnerState, PendingCheckpoint, checkpoint_path, checkpoints, read_checkpoint, resume
from trainer.config import SftConfig
from trainer.data.batch import MicroBatch, pack_row
from trainer.exits import EXIT_DONE, EXIT_STOPPED, UnstableError
from trainer.model.policy import Policy, model_folder
from trainer.model.sharding import Placement
from trainer.optim import apply_update, build_optimizers
from trainer.reports.metrics import MetricsSinks, make_sinks
from trainer.reports.records import write_records

log = logging.getLogger("muster.trainer")
_KEPT_CHECKPOINTS, _LOG_SECONDS = 2, 10.0
_MAX_DATA_BYTES = 1 << 40
_GUARDED = ("loss", "grad_norm", "heldout_loss")


class _Row(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")  # other programs have more fields (`id`, `tool_calls`, …)


class Part(_Row):
    """A piece of an answer; one that is not `learned` is only context for what follows it."""

    text: str
    learned: bool = True


class Message(_Row):
    """One turn. An assistant's may come in parts, of which only some are learned; they are tokenized separately."""

    role: Literal["system", "user", "assistant"]
    content: str | Annotated[tuple[Part, ...], Field(min_length=1)]

    @property
    def parts(self) -> tuple[Part, ...]:
        return (Part(text=self.content),) if isinstance(self.content, str) else self.content

    @property
    def text(self) -> str:
        return "".join(part.text for part in self.parts)


class Conversation(_Row):
    """Turns, at least one of them the assistant's: `{"messages": [{"role": …, "content": …}, …]}`."""

    messages: Annotated[tuple[Message, ...], Field(min_length=2)]

    @field_validator("messages")
    @classmethod
    def _answered(cls, value: tuple[Message, ...]) -> tuple[Message, ...]:
        if all(message.role != "assistant" for message in value):
            raise ValueError("no turn is the assistant's: there is nothing to learn")
        if value[0].role == "assistant":
            raise ValueError("the assistant cannot speak first")
        return value


def read_conversations(path: Path) -> Iterator[Conversation]:
    """Yield the conversations of a file of JSON lines, or of a JSON array, or of gzip of either. Raises ConfigError
    that names file, row and field."""
    with explained(f"read {path}", "check `data`"):
        try:
            for number, row in enumerate(json_rows(path, _MAX_DATA_BYTES), 1):
                where = f"{path}, row {number}"
                try:
                    yield Conversation.model_validate(parse_json(row))
                except ValidationError as error:
                    field, problem = first_problem(error.errors(), "the row")
                    raise ConfigError(f"{where}: `{field}`: {problem}", "mend the row") from None
                except ValueError as error:
                    raise ConfigError(f"{where}: it is not JSON: {error}", "write one JSON object a line") from None
        except IntegrityError as error:
            raise ConfigError(error.what, error.hint) from None


@dataclass(frozen=True)
class Example:
    """Token ids of a conversation; `learned` says of each whether its prediction is trained. The first never is."""

    tokens: tuple[int, ...]
    learned: tuple[bool, ...]

    def __post_init__(self) -> None:
        if len(self.tokens) != len(self.learned) or any(self.learned[:1]):
            raise ValueError("an example needs one mark a token, and nothing predicts its first one")

    @property
    def targets(self) -> int:
        """How many tokens are learned."""
        return sum(self.learned)


class ConversationEncoder:
    """Turns conversations into examples with a model's tokenizer and, with `chat_template`, its template. Without it
    turns follow one another as they are, and an EOS ends each of the assistant's. Raises ConfigError where the
    tokenizer has no template or no EOS."""

    def __init__(self, tokenizer: Any, chat_template: bool) -> None:
        self._tokenizer, self._template = tokenizer, chat_template
        if tokenizer.eos_token_id is None:
            raise ConfigError("the model's tokenizer has no EOS token", "choose another model")
        if chat_template and not tokenizer.chat_template:
            raise ConfigError("the model's tokenizer has no chat template", "set `chat_template` = false")

    def encode(self, conversation: Conversation) -> Example:
        """Return the tokens of a conversation: what the assistant says is learned, and that it stops. Raises
        ConfigError if the template changes an answer, or earlier turns when a new one follows."""
        tokens, learned, encoded = list[int](), list[bool](), ""
        for number, message in enumerate(conversation.messages):
            if message.role != "assistant":
                continue
            prompt = self._text(conversation.messages[:number], prompt=True)
            if not prompt.startswith(encoded):
                what = "the model's chat template changes earlier turns when a new one follows"
                raise ConfigError(what, "split the data into conversations of one answer each")
            answered, full_text = prompt + message.text, self._text(conversation.messages[: number + 1], prompt=False)
            if not full_text.startswith(answered):
                hint = "write the data as the template does, or set `chat_template` = false"
                raise ConfigError("the model's chat template changes what the assistant says", hint)
            end = full_text[len(answered) :].rstrip() or str(self._tokenizer.eos_token)
            answer = [(part.text, part.learned) for part in message.parts]
            for text, wanted in ((prompt[len(encoded) :], False), *answer, (end, answer[-1][1])):
                # A template brings its own special tokens; a prompt without one gets the tokenizer's, as in training
                # by RL.
                ids = self._tokenizer.encode(text, add_special_tokens=not (tokens or self._template))
                tokens += ids
                learned += [wanted] * len(ids)
            encoded = answered + end
        return Example(tuple(tokens), tuple(learned))

    def _text(self, messages: Sequence[Message], prompt: bool) -> str:
        """The turns, with `prompt` up to where the assistant begins to speak."""
        if self._template:
            turns = [{"role": message.role, "content": message.text} for message in messages]
            return str(self._tokenizer.apply_chat_template(turns, add_generation_prompt=prompt, tokenize=False))
        eos = self._tokenizer.eos_token
        return "".join(message.text + (eos if message.role == "assistant" else "") for message in messages)


def packed_row(examples: Sequence[Example], indices: Sequence[int], device: torch.device) -> MicroBatch:
    """Return the row that holds the examples at these indices, whose targets are their learned tokens; a dummy for no
    indices. All advantages are 1: to fine-tune is to reinforce the given answer."""
    chosen = [examples[index] for index in indices]
    learned = [[at for at, wanted in enumerate(example.learned) if wanted] for example in chosen]
    sequences = [(example.tokens, positions, 1.0) for example, positions in zip(chosen, learned, strict=True)]
    return pack_row(indices, sequences, None, device)


@dataclass(frozen=True)
class SftMetrics:
    """One update: mean loss (nats) over `targets` learned tokens of `tokens`, the gradient's norm before clipping."""

    update: int
    loss: float
    grad_norm: float
    learning_rate: float
    targets: int
    tokens: int


class SftLearner:
    """Minimises the mean negative log-likelihood of the learned tokens, over all ranks. `updates` counts those taken of
    `total`. Every rank has one and is given the same examples."""

    def __init__(self, policy: Policy, optimizer: OptimizerConfig, total: int) -> None:
        self.policy, self.placement = policy, policy.placement
        self._config = TrainConfig(steps=total, optimizer=optimizer)
        self._optimizers = build_optimizers(policy.model, self._config, self.placement.memory.offload_optimizer)
        self.updates = 0

    def update(self, examples: Sequence[Example]) -> SftMetrics:
        """Learn from a batch."""
        loss = self.loss(examples, learn=True)
        norm, rate = apply_update(self.policy.model, self._optimizers, self._config, self.updates)
        self.updates += 1
        targets = sum(example.targets for example in examples)
        tokens = sum(len(example.tokens) for example in examples)
        return SftMetrics(self.updates, loss, norm, rate, targets, tokens)

    def loss(self, examples: Sequence[Example], learn: bool = False) -> float:
        """Return the mean loss (nats) of the learned tokens, over every rank's rows; `learn` adds its gradient up."""
        device, targets = self.policy.device, max(1, sum(example.targets for example in examples))
        total = torch.zeros((), dtype=torch.float64, device=device)
        rows = self.policy.plan([len(example.tokens) for example in examples])[self.placement.row]
        for left, indices in zip(reversed(range(len(rows))), rows, strict=True):
            with torch.set_grad_enabled(learn):
                row_loss = -self.policy.logprobs(packed_row(examples, indices, device), 1.0)[0].sum()
            if learn:
                self.policy.backward(row_loss / targets, last=not left)
            total += row_loss.detach().double() * self.placement.reports
        return float(self.placement.ranks.sum(total)) / targets

    def start_checkpoint(self, folder: Path, extra: dict[str, Any]) -> PendingCheckpoint:
        """Begin to write what an exact resume needs, plus `extra` (JSON), to appear at `folder`."""
        state = LearnerState(self.updates, self.updates, "", extra)
        return PendingCheckpoint(folder, self.policy.model, self._optimizers, state, self.placement.ranks)

    def load_checkpoint(self, folder: Path) -> dict[str, Any]:
        """Restore what `start_checkpoint` wrote; return its `extra`. Raises IntegrityError on a damaged checkpoint."""
        state = read_checkpoint(folder, self.policy.model, self._optimizers, self.placement.ranks)
        self.updates = state.updates
        return state.extra


class SftRun:
    """One fine-tuning. `run` returns 0 when the model is written to `out`, 4 when asked to stop before: started again,
    it continues from its last checkpoint. Raises UnstableError for a loss or norm that is not finite."""

    def __init__(self, config: SftConfig, placement: Placement) -> None:
        self._config, self._ranks = config, placement.ranks
        folder = model_folder(config.model)
        encoder = ConversationEncoder(load_tokenizer(folder), config.chat_template)
        self._examples, self._heldout = load_examples(config.data, encoder, config.max_tokens, config.heldout)
        self._total = config.updates or -(-len(self._examples) * (config.epochs or 1) // config.batch)
        self._learner = SftLearner(Policy(folder, config.dtype, placement), config.optimizer, self._total)
        self._checkpoints, self._metrics_path = config.home / "checkpoints", config.home / "metrics.jsonl"
        self._identity = _identity(config, folder)
        self._records: list[dict[str, Any]] = []
        self._first = placement.ranks.rank == 0
        sinks = make_sinks(config.metrics, config.home, config.out.name) if self._first else ()
        self._sinks = MetricsSinks(sinks)
        self._stopping = threading.Event()
        self._last_log = 0.0

    def stop(self) -> None:
        self._stopping.set()

    def run(self) -> int:
        if self._first:
            remove_leftovers(self._checkpoints)
        self._ranks.barrier()
        self._resume()
        self._sinks.start()
        try:
            while self._learner.updates < self._total:
                asked = self._ranks.sum(torch.tensor([float(self._stopping.is_set())]))
                if asked.item():  # any rank was: all stop at the same update
                    self._checkpoint()
                    return EXIT_STOPPED
                self._update()
            self._learner.policy.export(self._config.out)
        finally:
            self._sinks.close()
        log.info("the model after %d updates is in %s", self._total, self._config.out)
        return EXIT_DONE

    def _update(self) -> None:
        started, before = time.monotonic(), self._learner.updates
        batch = [self._examples[index] for index in batch_indices(self._config, len(self._examples), before)]
        metrics = self._learner.update(batch)
        fields, seconds = asdict(metrics), time.monotonic() - started
        record = {"step": fields.pop("update"), **fields, "seconds": seconds}
        record["tokens_per_second"] = metrics.tokens / seconds
        due = metrics.update % self._config.checkpoint_updates == 0 or metrics.update == self._total
        if due and self._heldout:
            record["heldout_loss"] = self._learner.loss(self._heldout)
        if wrong := [name for name in _GUARDED if not math.isfinite(record.get(name, 0.0))]:
            raise UnstableError(
                f"update {record['step']} has {wrong[0]} {record[wrong[0]]}; the last checkpoint is kept",
                "lower the learning rate, and start again",
            )
        self._records.append(record)
        if due:
            self._checkpoint()
        self._sinks.write(record)
        if self._first and (time.monotonic() - self._last_log > _LOG_SECONDS or metrics.update == self._total):
            self._last_log = time.monotonic()
            log.info("update %d of %d: loss %.4f", metrics.update, self._total, metrics.loss)

    def _checkpoint(self) -> None:
        path = checkpoint_path(self._checkpoints, self._learner.updates)
        extra = {"identity": self._identity, "records": self._records}
        self._learner.start_checkpoint(path, extra).wait()
        if self._first:
            write_records(self._metrics_path, self._records)
            drop_old(checkpoints(self._checkpoints), _KEPT_CHECKPOINTS)

    def _resume(self) -> None:
        """Continue from the newest intact checkpoint. Raises ConfigError if it is of another fine-tuning."""
        extra = resume(self._checkpoints, self._learner.load_checkpoint)
        if extra is None:
            return
        if extra["identity"] != self._identity:
            what = f"{self._config.home} holds checkpoints of another fine-tuning"
            raise ConfigError(what, "name another `home`, or empty it")
        self._records = extra["records"]
        log.info("resumed at update %d of %d", self._learner.updates, self._total)


def load_examples(
    data: Path, encoder: ConversationEncoder, max_tokens: int, heldout: int
) -> tuple[list[Example], list[Example]]:
    """Return the examples to learn from, and the last `heldout` ones. Raises ConfigError if none are left."""
    examples = [encoder.encode(conversation) for conversation in read_conversations(data)]
    fitting = [example for example in examples if len(example.tokens) <= max_tokens and example.targets]
    if left_out := len(examples) - len(fitting):
        log.info("%d of %d conversations left out: over `max_tokens`, or nothing to learn", left_out, len(examples))
    cut = len(fitting) - heldout
    if cut < 1:
        what = f"{data} has {len(fitting)} conversations that fit, {heldout} of them held out"
        raise ConfigError(what, "give more data, raise `max_tokens` or lower `heldout`")
    return fitting[:cut], fitting[cut:]


def batch_indices(config: SftConfig, count: int, update: int) -> list[int]:
    """Return which of `count` examples an update learns from: epochs follow one another, each in its own order, and the
    last batch of `epochs` may be smaller."""
    end = (update + 1) * config.batch
    positions = range(update * config.batch, min(end, count * config.epochs) if config.epochs else end)
    return [epoch_order(config.seed, position // count, count)[position % count] for position in positions]


@lru_cache(maxsize=2)
def epoch_order(seed: int, epoch: int, count: int) -> tuple[int, ...]:
    """Return the order of `count` examples in an epoch."""
    generator = torch.Generator().manual_seed(seed * 1_000_003 + epoch)
    return tuple(torch.randperm(count, generator=generator).tolist())


def _identity(config: SftConfig, model: Path) -> str:
    """What two runs must share to continue from one another's checkpoints."""
    decisive = {"data", "chat_template", "dtype", "epochs", "updates", "batch", "max_tokens", "heldout", "seed"}
    document = config.model_dump(mode="json", include=decisive | {"optimizer"})
    document |= {"data": file_sha256(config.data), "model": str(model)}
    return sha256_hex(canonical_json(document))
