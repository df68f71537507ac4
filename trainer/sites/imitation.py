"""A site's inner steps on conversations: supervised fine-tuning on those that are dealt to it."""

from pathlib import Path

from protocol.errors import ConfigError
from protocol.models import load_tokenizer
from protocol.sites.layout import Tensors
from trainer.model.policy import Policy
from trainer.model.sharding import Placement
from trainer.sft import ConversationEncoder, Example, SftLearner, epoch_order, load_examples
from trainer.sites.config import ImitationConfig
from trainer.sites.inner import Saving, Share
from trainer.sites.learners import ImitationLearners


def imitation_learners(config: ImitationConfig, folder: Path, placement: Placement) -> ImitationLearners:
    """Of one rank, as `placement` says."""
    policy = Policy(folder, config.dtype, placement)
    return ImitationLearners(SftLearner(policy, config.optimizer, config.updates, config.max_z_loss))


class ImitationWork:
    """Goes through all conversations epoch by epoch, in an order that the seed decides anew each time, and learns from
    those that are this site's; `place` counts all that it has passed. An InnerWork."""

    def __init__(self, config: ImitationConfig, folder: Path, learners: ImitationLearners) -> None:
        encoder = ConversationEncoder(load_tokenizer(folder), config.chat_template)
        self._config = config
        self._examples, self._heldout = load_examples(config, encoder)
        self._learners = learners
        self.place = 0
        self._losses: list[float] = []

    def weights(self) -> Tensors:
        return self._learners.weights()

    def load(self, weights: Tensors) -> None:
        self._learners.load(weights)
        self._losses.clear()

    def train(self, share: Share, number: int) -> int:
        batch = self._batch(share)
        if not batch:
            return 0
        made = self._learners.update(batch)
        self._losses.append(made.loss)
        return made.tokens

    def figures(self) -> dict[str, float]:
        """The mean loss (nats)."""
        return {"loss": sum(self._losses) / len(self._losses)} if self._losses else {}

    def heldout_loss(self) -> float:
        """Mean loss (nats) of the conversations that are kept apart. Raises ConfigError where there are none."""
        if not self._heldout:
            raise ConfigError("no conversations are kept apart", "set `imitation.heldout`")
        return self._learners.loss(self._heldout)

    def save(self, folder: Path) -> Saving:
        return self._learners.save(folder, {"place": self.place})

    def restore(self, folder: Path) -> None:
        self.place = int(self._learners.restore(folder)["place"])
        self._losses.clear()

    def _batch(self, share: Share) -> list[Example]:
        """The next ones of this site; none where a whole epoch has none."""
        batch: list[Example] = []
        count, passed = len(self._examples), 0
        while len(batch) < self._config.batch and passed < count:
            epoch, at = divmod(self.place, count)
            number = epoch_order(self._config.seed, epoch, count)[at]
            self.place, passed = self.place + 1, passed + 1
            if share.mine(number.to_bytes(32, "big")):
                batch.append(self._examples[number])
                passed = 0
        return batch
