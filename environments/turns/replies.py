"""The replies of one rollout: asked for turn by turn, each of them bounded, and all of them together."""

from collections.abc import Callable, Sequence

from environments.base import InTurns, Problem
from environments.turns.frame import ReplyFrame
from protocol.rollout_file.rows import Tokens


class RolloutReplies:
    """What is put after the turns of one rollout at a problem, called once after each turn, in order (turns/replay.py).
    `text` says what a turn reads as. `room`: tokens that all replies may take together (None: any number).
    `vocabulary`: how many tokens the model knows; a tokenizer may know more, and a reply that holds one of those is
    none.

    Raises ScoringUnavailable where this machine cannot say."""

    def __init__(
        self,
        environment: InTurns,
        problem: Problem,
        frame: ReplyFrame,
        text: Callable[[Tokens], str],
        room: int | None,
        vocabulary: int,
    ) -> None:
        self._environment, self._problem, self._frame, self._text = environment, problem, frame, text
        self._room, self._vocabulary, self._said = room, vocabulary, list[str]()

    def __call__(self, turns: Sequence[Tokens]) -> Tokens | None:
        self._said += [self._text(turn) for turn in turns[len(self._said) :]]
        reply = self._environment.reply(self._problem, list(self._said))
        most = self._environment.declared.turns.reply_tokens
        most = most if self._room is None else min(most, self._room)
        tokens = None if reply is None else self._frame.tokens(reply, most)
        if tokens is None or max(tokens, default=0) >= self._vocabulary:
            return None
        self._room = None if self._room is None else self._room - len(tokens)
        return tokens
