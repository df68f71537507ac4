"""What a run must show, one line each."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Fact:
    """One line of the outcome, and whether it is as it should be."""

    text: str
    good: bool


def shown_fact(fact: Fact) -> str:
    return f"{'yes' if fact.good else 'NO '} {fact.text}"
