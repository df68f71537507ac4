"""What an answer must be like before scorers see it that evaluate it as code, have no bound on their time, or give
full marks to what is no answer.

The first two see a list, a number, a formula or moves that cannot name anything of the interpreter and are cheap to
evaluate; what has another form is worth nothing. Patterns have possessive quantifiers only, so that matching is linear.
The last see only what agrees with the reference as far as the task demands (agreeing.py).
"""

import re

from environments.gym.agreeing import AGREEING

_SPACES = r"[ \t\r\n]"
_LIST = re.compile(rf"""\[(?:{_SPACES}|[\[\],0-9-]|"[^"\\\n]*+"|'[^'\\\n]*+')*+""")
_SUM = re.compile(r"(?:[0-9+\-() ]|\*(?!\*)|/(?!/))*+")
_NUMBER = re.compile(rf"{_SPACES}*+[0-9.,/\-]{{1,40}}+{_SPACES}*+")
_COMPLEX = re.compile(rf"(?:{_SPACES}|[0-9.+\-ij()])*+")
_SHIFTS = re.compile(rf"(?:[A-Z][+-][0-9](?![0-9])|{_SPACES}|,)*+")
_TURNS = re.compile(rf"(?:[UDLRFBMESXYZudlrfbxyz]w?+'?+[0-9]?+'?+(?:{_SPACES}++|\Z))*+")
_POWER = r"(?<=[a-zX0-9])\*\*[0-9]{1,2}(?![0-9]|\*\*)"
_LETTER = r"(?<![0-9])[a-zX](?![a-zA-Z(])|C(?![a-zA-Z(])"
_POLYNOMIAL = re.compile(rf"(?:[ +\-()]|[0-9]++|{_LETTER}|/(?=[0-9])|{_POWER}|\*(?!\*))*+")

_FORMS: dict[str, tuple[re.Pattern[str], int]] = {
    "binary_matrix": (_LIST, 4096),
    "coin_flip": (_NUMBER, 64),
    "complex_arithmetic": (_COMPLEX, 200),
    "countdown": (_SUM, 200),
    "n_queens": (_LIST, 4096),
    "polynomial_multiplication": (_POLYNOMIAL, 1000),
    "puzzle24": (_SUM, 200),
    "rubiks_cube": (_TURNS, 1000),
    "rush_hour": (_SHIFTS, 1000),
    "simple_integration": (_POLYNOMIAL, 200),
    "spiral_matrix": (_LIST, 4096),
    "string_insertion": (_LIST, 4096),
}
GUARDED = frozenset(_FORMS)


def may_be_scored(dataset: str, answer: str, reference: str) -> bool:
    """Whether a dataset's scorer may see an answer; the reference itself always may."""
    if answer == reference:
        return True
    if dataset in _FORMS:
        form, longest = _FORMS[dataset]
        if len(answer) > longest or form.fullmatch(answer.strip()) is None:
            return False
    return dataset not in AGREEING or AGREEING[dataset](answer, reference)
