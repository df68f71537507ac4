"""Answers that scorers see only where they agree with the reference, or keep to the task, in what no scorer looks at.

A scorer that takes any four numbers for the puzzle's, `nan` for every number or a shifted target for a shifted box
would pay for knowing the scorer. Each function takes an answer and the reference, and reads hostile text.
"""

import ast
import json
import operator
import re
from collections.abc import Callable, Mapping
from fractions import Fraction

_OPERATIONS: Mapping[type[ast.operator], Callable[[Fraction, Fraction], Fraction]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}


def _same_word(answer: str, reference: str) -> bool:
    return answer.strip().lower() == reference.strip().lower()


def _same_letters(answer: str, reference: str) -> bool:
    """With spaces between them or without."""
    return _same_word(answer.replace(" ", ""), reference)


def _same_probability(answer: str, reference: str) -> bool:
    try:
        return abs(Fraction(answer.strip()) - Fraction(reference)) <= Fraction(1, 10_000)
    except (ValueError, ZeroDivisionError):
        return False


def _same_list(answer: str, reference: str) -> bool:
    """Of numbers, as numbers or as texts."""
    try:
        given, right = ([float(one) for one in json.loads(text.replace("'", '"'))] for text in (answer, reference))
    except (ValueError, TypeError, OverflowError, RecursionError):
        return False
    return given == right


def _makes_24(answer: str, reference: str) -> bool:
    """Exactly, of the numbers of the reference, each as often as there."""
    if sorted(re.findall(r"[0-9]+", answer)) != sorted(re.findall(r"[0-9]+", reference)):
        return False
    try:
        return _value(ast.parse(answer.strip(), mode="eval").body) == 24
    except (ValueError, SyntaxError, ZeroDivisionError, RecursionError, MemoryError):
        return False


def _value(formula: ast.expr) -> Fraction:
    """Of a sum of products. Raises ValueError for anything else."""
    match formula:
        case ast.Constant(value=int(number)):
            return Fraction(number)
        case ast.UnaryOp(op=ast.USub(), operand=one):
            return -_value(one)
        case ast.BinOp(left=left, op=does, right=right) if type(does) in _OPERATIONS:
            return _OPERATIONS[type(does)](_value(left), _value(right))
    raise ValueError(f"{type(formula).__name__} is no part of a sum of products")


def _moves_no_target(answer: str, _: str) -> bool:
    """Whether a plan moves boxes to targets, and not the other way round."""
    try:
        moves = [move for step in json.loads(answer) for move in step.values()]
    except (ValueError, TypeError, AttributeError, RecursionError):
        return False
    return not any(isinstance(move, str) and move.startswith("move(target") for move in moves)


AGREEING: Mapping[str, Callable[[str, str], bool]] = {
    "boxnet": _moves_no_target,
    "coin_flip": _same_probability,
    "figlet_font": _same_letters,
    "game_of_life_halting": _same_word,
    "number_sorting": _same_list,
    "puzzle24": _makes_24,
}
