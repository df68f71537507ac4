"""Supervised fine-tuning from a configuration: every rank goes through the same conversations in the same order."""

import logging
import math
import threading
import time
from dataclasses import asdict
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol

import torch

from protocol.encoding import canonical_json, sha256_hex
from protocol.errors import ConfigError, IntegrityError
from protocol.files import file_sha256
from protocol.folders import drop_old, remove_leftovers
from protocol.models.tokenizer import load_tokenizer
from trainer.basemodel import model_folder
from trainer.exits import EXIT_DONE, EXIT_STOPPED
from trainer.guards import UnstableError
from trainer.metrics.sinks import MetricsSinks
from trainer.model.policy import Policy
from trainer.model.sharding import Placement
from trainer.config import SftConfig
from trainer.metrics.config import make_sinks
from trainer.sft.conversations import read_conversations
from trainer.sft.examples import ConversationEncoder, Example
from trainer.sft.learner import ImitationLearner, ImitationMetrics
from trainer.state.checkpoint import checkpoint_path, checkpoints
from trainer.state.records import write_records

log = logging.getLogger("muster.trainer")
_KEPT, _SAY_SECONDS = 2, 10.0


class SftRun:
    """One fine-tuning. `run` returns 0 when the model is written to `out`, 4 when asked to stop before: it goes on from
    its last checkpoint when it is started again. Raises UnstableError for a loss or norm that is no number."""

    def __init__(self, config: SftConfig, placement: Placement) -> None:
        self._config, self._ranks = config, placement.ranks
        folder = model_folder(config.model)
        encoder = ConversationEncoder(load_tokenizer(folder), config.chat_template)
        self._examples, self._heldout = load_examples(config, encoder)
        self._total = config.updates or -(-len(self._examples) * (config.epochs or 1) // config.batch)
        self._learner = ImitationLearner(Policy(folder, config.dtype, placement), config.optimizer, self._total)
        self._checkpoints, self._records = config.home / "checkpoints", config.home / "metrics.jsonl"
        self._identity = _identity(config, folder)
        self._lines: list[dict[str, Any]] = []
        self._sinks = MetricsSinks(make_sinks(config.metrics, config.home, config.out.name) if self._first else ())
        self._stopping = threading.Event()
        self._said = 0.0

    @property
    def _first(self) -> bool:
        return self._ranks.rank == 0

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
                if self._asked_to_stop():
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
        batch = [self._examples[place] for place in batch_places(self._config, len(self._examples), before)]
        metrics = self._learner.update(batch)
        record = _record(metrics, time.monotonic() - started)
        due = metrics.update % self._config.checkpoint_updates == 0 or metrics.update == self._total
        if due and self._heldout:
            record["heldout_loss"] = self._learner.loss(self._heldout)
        _check_finite(record)
        self._lines.append(record)
        if due:
            self._checkpoint()
        self._sinks.write(record)
        if self._first and (time.monotonic() - self._said > _SAY_SECONDS or metrics.update == self._total):
            self._said = time.monotonic()
            log.info("update %d of %d: loss %.4f", metrics.update, self._total, metrics.loss)

    def _checkpoint(self) -> None:
        path = checkpoint_path(self._checkpoints, self._learner.updates)
        extra = {"identity": self._identity, "records": self._lines}
        self._learner.start_checkpoint(path, extra).wait()
        if self._first:
            write_records(self._records, self._lines)
            drop_old(checkpoints(self._checkpoints), _KEPT)

    def _resume(self) -> None:
        """Go on from the newest intact checkpoint. Raises ConfigError if it is of another fine-tuning."""
        for path in reversed(checkpoints(self._checkpoints)):
            try:
                extra = self._learner.load_checkpoint(path)
            except IntegrityError as error:
                log.warning("%s", error)
                continue
            if extra["identity"] != self._identity:
                raise ConfigError(
                    f"{self._config.home} holds checkpoints of another fine-tuning", "name another `home`, or empty it"
                )
            self._lines = extra["records"]
            log.info("resumed at update %d of %d", self._learner.updates, self._total)
            return

    def _asked_to_stop(self) -> bool:
        """Whether any rank was: all stop at the same update."""
        return bool(self._ranks.sum(torch.tensor([float(self._stopping.is_set())])).item())


def _check_finite(record: dict[str, Any]) -> None:
    wrong = [name for name in ("loss", "grad_norm", "heldout_loss") if not math.isfinite(record.get(name, 0.0))]
    if wrong:
        raise UnstableError(
            f"update {record['step']} has {wrong[0]} {record[wrong[0]]}; the last checkpoint is kept",
            "lower the learning rate, and start again",
        )


class ConversationSource(Protocol):
    """Of a configuration: which conversations, how long at most, how many of them kept apart."""

    @property
    def data(self) -> Path: ...

    @property
    def max_tokens(self) -> int: ...

    @property
    def heldout(self) -> int: ...


def load_examples(config: ConversationSource, encoder: ConversationEncoder) -> tuple[list[Example], list[Example]]:
    """The examples to learn from, and the last `heldout` ones kept apart. Raises ConfigError if none are left."""
    every = [encoder.encode(conversation) for conversation in read_conversations(config.data)]
    fitting = [one for one in every if len(one.tokens) <= config.max_tokens and one.targets]
    if len(fitting) < len(every):
        left = len(every) - len(fitting)
        log.info("%d of %d conversations are left out: over `max_tokens`, or nothing to learn", left, len(every))
    cut = len(fitting) - config.heldout
    if cut < 1:
        raise ConfigError(
            f"{config.data} has {len(fitting)} conversations that fit, {config.heldout} of them held out",
            "give more data, raise `max_tokens` or lower `heldout`",
        )
    return fitting[:cut], fitting[cut:]


def batch_places(config: SftConfig, count: int, update: int) -> list[int]:
    """Which of `count` examples an update learns from: epochs follow one another, each in an order of its own, and the
    last batch of `epochs` may be smaller."""
    last = count * config.epochs if config.epochs else None
    places = []
    for position in range(update * config.batch, (update + 1) * config.batch):
        if last is None or position < last:
            epoch, place = divmod(position, count)
            places.append(epoch_order(config.seed, epoch, count)[place])
    return places


@lru_cache(maxsize=2)
def epoch_order(seed: int, epoch: int, count: int) -> tuple[int, ...]:
    """The order of `count` examples in an epoch."""
    generator = torch.Generator().manual_seed(seed * 1_000_003 + epoch)
    return tuple(torch.randperm(count, generator=generator).tolist())


def _record(metrics: ImitationMetrics, seconds: float) -> dict[str, Any]:
    fields = asdict(metrics)
    return {"step": fields.pop("update"), **fields, "seconds": seconds, "tokens_per_second": metrics.tokens / seconds}


def _identity(config: SftConfig, model: Path) -> str:
    """What two runs must share to go on from one another's checkpoints."""
    decisive = {"data", "chat_template", "dtype", "epochs", "updates", "batch", "max_tokens", "heldout", "seed"}
    document = config.model_dump(mode="json", include=decisive | {"optimizer"})
    document |= {"data": file_sha256(config.data), "model": str(model)}
    return sha256_hex(canonical_json(document))
