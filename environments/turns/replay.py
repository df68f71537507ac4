"""A transcript from the tokens that were sampled: the same for the worker that goes on and for whoever judges."""

from collections.abc import Callable, Collection, Sequence
from itertools import pairwise

from protocol.rollout_file.rows import Tokens, Transcript

Reply = Callable[[Sequence[Tokens]], Tokens | None]
"""What is put after the turns so far; None where they are the end. A function of them and the problem alone."""


def turns_of(sampled: Sequence[int], eos_ids: Collection[int]) -> list[Tokens]:
    """What was sampled (at least one token), cut after each EOS."""
    cuts = [place + 1 for place, token in enumerate(sampled[:-1]) if token in eos_ids]
    return [tuple(sampled[first:last]) for first, last in pairwise((0, *cuts, len(sampled)))]


def replay(sampled: Tokens, eos_ids: Collection[int], most: int, reply: Reply) -> Transcript:
    """Take apart what was sampled, `most` turns at most: an EOS ends a turn, and the environment says what follows."""
    turns: list[Tokens] = []
    replies: list[Tokens] = []
    rest = turns_of(sampled, eos_ids)
    while True:
        turns.append(rest.pop(0))
        due = reply(turns) if turns[-1][-1] in eos_ids and len(turns) < most else None
        if due is None or not rest:
            return Transcript(tuple(turns), tuple(replies), due, sum(map(len, rest)))
        replies.append(due)
