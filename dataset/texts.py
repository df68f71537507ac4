"""Tokens as text, and the names of problems: what an export adds to a rollout for people to read."""

import logging
from collections.abc import Sequence

from engines.base import FINISH_EOS
from environments.catalogue import load_environment
from protocol.config import PoolConfig
from protocol.environments import drawn
from protocol.errors import MusterError
from protocol.models.tokenizer import Tokenizer

log = logging.getLogger("muster.dataset")


class Texts:
    """Prompts and completions in the words of a pool's tokenizer."""

    def __init__(self, config: PoolConfig, tokenizer: Tokenizer) -> None:
        self._config, self._tokenizer, self._size = config, tokenizer, len(tokenizer)

    def prompt(self, tokens: Sequence[int]) -> str:
        """With the chat template's own tokens, where there is one."""
        ids = [token for token in tokens if 0 <= token < self._size]  # padded vocabularies have ids without text
        return self._tokenizer.decode(ids, skip_special_tokens=False, clean_up_tokenization_spaces=False)

    def completion(self, tokens: Sequence[int], finish: int) -> str:
        """Without the EOS that ended it."""
        return self.prompt(tokens[:-1] if finish == FINISH_EOS else tokens)

    def problem(self, problem_seed: int) -> tuple[str, int]:
        """The environment that a problem seed falls to, and that environment's own seed of the problem."""
        found = drawn(self._config.environments, problem_seed)
        return self._config.environments[found.environment].called, found.seed


def declared_licences(config: PoolConfig) -> dict[str, str]:
    """What the pool's environments declare, by their names; of those that this machine can load."""
    found = {}
    for one in config.environments:
        try:
            found[one.called] = load_environment(one).declared.licence
        except MusterError as error:
            log.info("the licence of %s is not known here: %s", one.called, error.what)
    return found
