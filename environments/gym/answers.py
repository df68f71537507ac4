"""What an answer must be like before scorers see it that evaluate it as code, have no bound on their time, or give
full marks to what is no answer.

The first two see a list, a number or a formula that cannot name anything of the interpreter and is cheap to evaluate;
what has another form is worth nothing. Patterns have possessive quantifiers only, so that matching is linear. The last
see only what agrees with the reference as far as the task demands: a scorer that takes any four numbers for the
puzzle's, or every text for `True`, would pay for knowing the scorer.
"""

import re
from collections.abc import Callable, Mapping
from fractions import Fraction

_SPACES = r"[ \t\r\n]"
_LIST = re.compile(rf"""\[(?:{_SPACES}|[\[\],0-9-]|"[^"\\\n]*+"|'[^'\\\n]*+')*+""")
_SUM = re.compile(r"[0-9+\-/() ]*+(?:\*(?!\*)[0-9+\-/() ]*+)*+")
_NUMBER = re.compile(rf"{_SPACES}*+[0-9.,/\-]{{1,40}}+{_SPACES}*+")
_COMPLEX = re.compile(rf"(?:{_SPACES}|[0-9.+\-ij()])*+")
_LOGIC = re.compile(r"[A-Z∧∨¬→↔() ]*+")
_POWER = r"(?<=[a-zX0-9])\*\*[0-9]{1,2}(?![0-9*])"
_LETTER = r"(?<![0-9])[a-zX](?![a-zA-Z(])|C(?![a-zA-Z(])"
_POLYNOMIAL = re.compile(rf"(?:[ +\-()]|[0-9]++|{_LETTER}|/(?=[0-9])|{_POWER}|\*(?!\*))*+")

_FORMS: dict[str, tuple[re.Pattern[str], int]] = {
    "binary_matrix": (_LIST, 4096),
    "coin_flip": (_NUMBER, 64),
    "complex_arithmetic": (_COMPLEX, 200),
    "countdown": (_SUM, 200),
    "n_queens": (_LIST, 4096),
    "polynomial_multiplication": (_POLYNOMIAL, 1000),
    "propositional_logic": (_LOGIC, 200),
    "puzzle24": (_SUM, 200),
    "simple_integration": (_POLYNOMIAL, 200),
    "spiral_matrix": (_LIST, 4096),
    "string_insertion": (_LIST, 4096),
}
GUARDED = frozenset(_FORMS)


def _same_word(answer: str, reference: str) -> bool:
    return answer.strip().lower() == reference.strip().lower()


def _same_numbers(answer: str, reference: str) -> bool:
    """Each as often as there."""
    return sorted(re.findall(r"[0-9]++", answer)) == sorted(re.findall(r"[0-9]++", reference))


def _same_probability(answer: str, reference: str) -> bool:
    try:
        return abs(Fraction(answer.strip()) - Fraction(reference)) <= Fraction(1, 10_000)
    except (ValueError, ZeroDivisionError):
        return False


_AGREEING: Mapping[str, Callable[[str, str], bool]] = {
    "coin_flip": _same_probability,
    "game_of_life_halting": _same_word,
    "puzzle24": _same_numbers,
}


def may_be_scored(dataset: str, answer: str, reference: str) -> bool:
    """Whether a dataset's scorer may see an answer; the reference itself always may."""
    if answer == reference:
        return True
    if dataset in _FORMS:
        form, longest = _FORMS[dataset]
        if len(answer) > longest or form.fullmatch(answer.strip()) is None:
            return False
    return dataset not in _AGREEING or _AGREEING[dataset](answer, reference)
