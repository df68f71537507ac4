"""Lines of text of several kinds, without torch."""

import random

TASKS = ("sums", "reversal", "sorting", "counting", "repetition", "successors")
LENGTH = 24


def text(task: str, dice: random.Random) -> bytes:
    """A line of the task, cut or padded with spaces to LENGTH bytes."""
    a, b = dice.randrange(100), dice.randrange(100)
    word = "".join(dice.choice("abcdefgh") for _ in range(8))
    made = {
        "sums": f"{a} + {b} = {a + b}",
        "reversal": f"{word} -> {word[::-1]}",
        "sorting": f"sort {word}: {''.join(sorted(word))}",
        "counting": f"a in {word}: {word.count('a')}",
        "repetition": f"{word} {word}",
        "successors": f"after {a} comes {a + 1}",
    }[task]
    return made.encode()[:LENGTH].ljust(LENGTH)
