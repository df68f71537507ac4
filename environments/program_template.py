"""An environment of your own: problems made from numbers, and what answers to them are worth.

Workers and validators run it in a sandbox that has Python 3.12's standard library and no files, network or clock:
everybody gets the same problems and scores. Try it with: muster env check FILE
"""

import random
from typing import Any


def problem(seed: int) -> dict[str, Any]:
    """Return the problem of a seed, 0 to 2**64 - 1. Draw from random.Random(seed): the global `random` has no seed
    here."""
    draw = random.Random(seed)
    words = [draw.choice(["red", "green", "blue", "white"]) for _ in range(draw.randint(3, 9))]
    question = f"How often does the word {words[0]} occur here? {' '.join(words)}\nAnswer with a number only."
    # Whatever else `score` needs goes into metadata, as JSON can say it.
    return {"question": question, "answer": str(words.count(words[0])), "metadata": {"words": words}}


def score(problem: dict[str, Any], answer_text: str) -> float:
    """From 0 to 1. The text is a stranger's, who is paid for the score: compare it, never evaluate it. What raises,
    or takes longer than `seconds` allows (about half a second), is worth 0."""
    return float(answer_text.strip() == problem["answer"])
