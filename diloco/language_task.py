"""Inner steps on documents and on conversations: the next ones of the stream that the worker owns."""

from pathlib import Path
from typing import Any

from diloco.config import DilocoRun, LanguageConfig, SftTaskConfig, TextTaskConfig
from diloco.corpus import Corpus, Cursor, TextStream
from diloco.partition import shuffled
from diloco.store import Saving
from diloco.tasks import POSITION, DataShare, LanguageLearners
from diloco.tensors import Tensors
from protocol.errors import ConfigError
from protocol.models import load_tokenizer
from trainer.model.policy import Policy
from trainer.model.sharding import Placement
from trainer.sft import ConversationEncoder, Example, SftLearner, SftMetrics, load_examples


def language_learners(config: LanguageConfig, folder: Path, placement: Placement) -> LanguageLearners:
    """Return the learner of one rank."""
    policy = Policy(folder, config.dtype, placement)
    return LanguageLearners(SftLearner(policy, config.optimizer, config.updates))


class LanguageTask:
    """What tasks on text and on conversations share; see `TextTask` and `SftTask`. An InnerTask.

    The learning rate's schedule goes by the run's inner steps, so a worker that joins late has the rate of the
    others."""

    def __init__(self, run: DilocoRun, learners: LanguageLearners, heldout: list[Example]) -> None:
        self._inner_steps, self._learners, self._heldout = run.settings.inner_steps, learners, heldout
        self._made: list[SftMetrics] = []
        self.cursor = Cursor()

    def _batch(self, share: DataShare) -> list[Example]:
        """Return the worker's next examples and advance the cursor; none where a whole epoch has none."""
        raise NotImplementedError

    def weights(self) -> Tensors:
        return self._learners.weights()

    def load(self, weights: Tensors) -> None:
        self._learners.load(weights)
        self._made.clear()

    def train(self, share: DataShare, number: int) -> int:
        if not number and share.position > self.cursor.position:
            self.cursor = Cursor(share.position)
        batch = self._batch(share)
        if not batch:
            return 0
        metrics = self._learners.update(batch, share.step * self._inner_steps + number)
        self._made.append(metrics)
        return metrics.tokens

    def metrics(self) -> dict[str, float]:
        """Return the mean loss, the largest gradient norm, the last learning rate, the position in the stream, and the
        loss of the documents that are kept apart."""
        found = {POSITION: float(self.cursor.position)}
        if self._made:
            found["loss"] = sum(one.loss for one in self._made) / len(self._made)
            found["grad_norm"] = max(one.grad_norm for one in self._made)
            found["learning_rate"] = self._made[-1].learning_rate
        return found | ({"heldout_loss": self.heldout_loss()} if self._heldout else {})

    def heldout_loss(self) -> float:
        """Return the mean loss (nats per token) of what is kept apart. Raises ConfigError where nothing is."""
        if not self._heldout:
            raise ConfigError("nothing is kept apart to measure the loss", "set `heldout`")
        return self._learners.loss(self._heldout)

    def save(self, folder: Path) -> Saving:
        return self._learners.save(folder, {"position": self.cursor.position, "offset": self.cursor.offset})

    def restore(self, folder: Path) -> None:
        extra = self._learners.restore(folder)
        self.cursor = Cursor(int(extra["position"]), int(extra["offset"]))
        self._made.clear()


class TextTask(LanguageTask):
    """Next tokens of documents, packed, nothing padded."""

    def __init__(
        self, config: TextTaskConfig, folder: Path, corpus: Corpus, run: DilocoRun, learners: LanguageLearners
    ) -> None:
        encode, count = DocumentEncoder(load_tokenizer(folder)), len(corpus) - config.heldout
        kept_apart = (encode(corpus.text(number)) for number in range(count, len(corpus)))
        heldout = [_predicting(one[: config.sequence_tokens]) for one in kept_apart if len(one) >= 2]
        super().__init__(run, learners, heldout)
        self._batch_tokens = config.batch_tokens
        self._stream = TextStream(corpus, count, encode, bytes.fromhex(run.seed), config.sequence_tokens)

    def _batch(self, share: DataShare) -> list[Example]:
        self._stream.cursor = self.cursor
        pieces = self._stream.take(self._batch_tokens, lambda position: share.owns(position.to_bytes(32, "big")))
        self.cursor = self._stream.cursor
        return [_predicting(piece) for piece in pieces]


class SftTask(LanguageTask):
    """Supervised fine-tuning on conversations, in an order that the run's seed decides anew each epoch."""

    def __init__(self, config: SftTaskConfig, folder: Path, run: DilocoRun, learners: LanguageLearners) -> None:
        encoder = ConversationEncoder(load_tokenizer(folder), config.chat_template)
        self._examples, heldout = load_examples(config.data, encoder, config.max_tokens, config.heldout)
        super().__init__(run, learners, heldout)
        self._size, self._seed = config.batch, bytes.fromhex(run.seed)

    def _batch(self, share: DataShare) -> list[Example]:
        batch: list[Example] = []
        count, position, passed = len(self._examples), self.cursor.position, 0
        while len(batch) < self._size and passed < count:
            epoch, at = divmod(position, count)
            position, passed = position + 1, passed + 1
            if share.owns((position - 1).to_bytes(32, "big")):
                batch.append(self._examples[shuffled(self._seed, epoch, at, count)])
                passed = 0
        self.cursor = Cursor(position)
        return batch


class DocumentEncoder:
    """Encodes a document: what the tokenizer begins it with, its text, and an EOS. Raises ConfigError for a tokenizer
    without one."""

    def __init__(self, tokenizer: Any) -> None:
        if tokenizer.eos_token_id is None:
            raise ConfigError("the model's tokenizer has no EOS token", "choose another model")
        self._tokenizer, self._end = tokenizer, int(tokenizer.eos_token_id)

    def __call__(self, text: str) -> tuple[int, ...]:
        tokens = tuple(self._tokenizer.encode(text))
        return tokens if tokens[-1:] == (self._end,) else (*tokens, self._end)


def _predicting(piece: tuple[int, ...]) -> Example:
    """Return an example that learns every token but the first."""
    return Example(piece, (False, *(True for _ in piece[1:])))
