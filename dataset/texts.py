"""Tokens as text, and the names of problems: what an export adds to a rollout for people to read."""

from collections.abc import Sequence

from engines.base import FINISH_EOS
from protocol.config import PoolConfig
from protocol.environments import drawn
from protocol.models.tokenizer import Tokenizer


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


def environment_names(config: PoolConfig) -> list[str]:
    """The environments of a pool."""
    return [one.called for one in config.environments]
