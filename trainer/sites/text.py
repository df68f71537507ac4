"""A site's inner steps on text: the next tokens of the documents that are dealt to it, packed, nothing padded."""

from pathlib import Path
from typing import Any

from protocol.errors import ConfigError
from protocol.models import load_tokenizer
from protocol.sites.layout import Tensors
from protocol.sites.run import SitesRun
from trainer.model.policy import Policy
from trainer.model.sharding import Placement
from trainer.sft import Example, SftLearner, SftMetrics
from trainer.sites.config import TextConfig
from trainer.sites.inner import Saving, Share
from trainer.sites.learners import ImitationLearners
from trainer.sites.places import FIGURE
from trainer.text.corpus import Corpus
from trainer.text.stream import Cursor, TextStream


def text_learners(config: TextConfig, folder: Path, placement: Placement) -> ImitationLearners:
    """Of one rank, as `placement` says."""
    policy = Policy(folder, config.dtype, placement)
    return ImitationLearners(SftLearner(policy, config.optimizer, config.updates, config.max_z_loss))


class TextWork:
    """`cursor` says how far the stream of all documents was passed. `inner_steps`: of an outer step; the schedule of
    the learning rate goes by the run's inner steps, so that whoever joins late has the rate of all. An InnerWork, for
    rank 0."""

    def __init__(
        self, config: TextConfig, folder: Path, corpus: Corpus, run: SitesRun, learners: ImitationLearners
    ) -> None:
        self._config, self._inner_steps, self._learners = config, run.settings.inner_steps, learners
        self._encode = DocumentEncoder(load_tokenizer(folder))
        count = len(corpus) - config.heldout
        self._stream = TextStream(corpus, count, self._encode, bytes.fromhex(run.seed), config.sequence_tokens)
        self._heldout = self._beginnings(corpus, range(count, len(corpus)))
        self._made: list[SftMetrics] = []

    @property
    def cursor(self) -> Cursor:
        return self._stream.cursor

    def weights(self) -> Tensors:
        return self._learners.weights()

    def load(self, weights: Tensors) -> None:
        self._learners.load(weights)
        self._made.clear()

    def train(self, share: Share, number: int) -> int:
        if not number:
            self._stream.skip_to(share.place)
        pieces = self._stream.take(self._config.batch_tokens, lambda place: share.mine(place.to_bytes(32, "big")))
        if not pieces:
            return 0
        made = self._learners.update(list(map(_example, pieces)), share.step * self._inner_steps + number)
        self._made.append(made)
        return made.tokens

    def figures(self) -> dict[str, float]:
        """Mean loss, largest norm of a gradient, last learning rate, where in the stream the site stands, and the loss
        of what is kept apart."""
        found = {FIGURE: float(self.cursor.place)}
        if self._made:
            found["loss"] = sum(one.loss for one in self._made) / len(self._made)
            found["grad_norm"] = max(one.grad_norm for one in self._made)
            found["learning_rate"] = self._made[-1].learning_rate
        return found | ({"heldout_loss": self.heldout_loss()} if self._heldout else {})

    def heldout_loss(self) -> float:
        """Mean loss (nats a token) of the beginnings of the documents that are kept apart."""
        return self._learners.loss(self._heldout)

    def save(self, folder: Path) -> Saving:
        return self._learners.save(folder, {"place": self.cursor.place, "offset": self.cursor.offset})

    def restore(self, folder: Path) -> None:
        said = self._learners.restore(folder)
        self._stream.cursor = Cursor(int(said["place"]), int(said["offset"]))
        self._made.clear()

    def _beginnings(self, corpus: Corpus, numbers: range) -> list[Example]:
        """Of the documents that are kept apart, those that predict something."""
        texts = (self._encode(corpus.text(number)) for number in numbers)
        return [_example(one[: self._config.sequence_tokens]) for one in texts if len(one) >= 2]


class DocumentEncoder:
    """The tokens of a document: what the tokenizer begins it with, its text, and an EOS. Raises ConfigError for a
    tokenizer without one."""

    def __init__(self, tokenizer: Any) -> None:
        if tokenizer.eos_token_id is None:
            raise ConfigError("the model's tokenizer has no EOS token", "choose another model")
        self._tokenizer, self._end = tokenizer, int(tokenizer.eos_token_id)

    def __call__(self, text: str) -> tuple[int, ...]:
        tokens = tuple(self._tokenizer.encode(text))
        return tokens if tokens[-1:] == (self._end,) else (*tokens, self._end)


def _example(piece: tuple[int, ...]) -> Example:
    return Example(piece, (False, *(True for _ in piece[1:])))
