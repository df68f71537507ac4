"""What an answer must be like before scorers see it that evaluate it as code, have no bound on their time, or give
full marks to what is no answer.

The first two see a list, a number, a formula or moves that cannot name anything of the interpreter and are cheap to
evaluate; what has another form is worth nothing. Each pattern matches a text in one way only, so matching is linear
without possessive quantifiers or atomic groups, which CPython 3.11.2 gets wrong.
The last see only what agrees with the reference as far as the task demands (agreeing.py).
"""

import re
import unicodedata

from environments.gym.agreeing import AGREEING

_SPACES = r"[ \t\r\n]"
_LIST = re.compile(rf"""\[(?:{_SPACES}|[\[\],0-9-]|"[^"\\\n]*"|'[^'\\\n]*')*""")
_SUM = re.compile(r"(?:[0-9+\-() ]|\*(?!\*)|/(?!/))*")
_NUMBER = re.compile(rf"{_SPACES}*[0-9.,/\-]{{1,40}}{_SPACES}*")
_COMPLEX = re.compile(r"[ \t\r\n0-9.+\-ij()]*")
_SHIFTS = re.compile(rf"(?:[A-Z][+-][0-9](?![0-9])|{_SPACES}|,)*")
_TURNS = re.compile(rf"(?:[UDLRFBMESXYZudlrfbxyz]w?(?:'[0-9]?'?|[0-9]'?)?(?:{_SPACES}+|\Z))*")
_POWER = r"(?<=[a-zX0-9])\*\*[0-9]{1,2}(?![0-9]|\*\*)"
_LETTER = r"(?<![0-9])[a-zX](?![a-zA-Z(])|C(?![a-zA-Z(])"
_POLYNOMIAL = re.compile(rf"(?:[ +\-()0-9]|{_LETTER}|/(?=[0-9])|{_POWER}|\*(?!\*))*")

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
MAX_DEPTH = 64
"""Of brackets and of signs in a row: parsers of different Python versions give up at different depths."""
_SIGNS = re.compile(rf"[-+~]{{{MAX_DEPTH}}}")


def may_be_scored(dataset: str, answer: str, reference: str) -> bool:
    """Whether a dataset's scorer may see an answer; the reference itself always may."""
    if answer == reference:
        return True
    if nesting(answer) > MAX_DEPTH or _SIGNS.search(answer):
        return False
    if dataset in _FORMS:
        form, longest = _FORMS[dataset]
        if len(answer) > longest or form.fullmatch(answer.strip()) is None:
            return False
    return dataset not in AGREEING or AGREEING[dataset](answer, reference)


def portable(answer: str) -> str:
    """Return the answer with characters that Unicode 3.2 lacks replaced by U+FFFD.

    Every Python version has its own table of later characters, and scorers ask it what is a digit, a letter or a space.
    """
    if answer.isascii():
        return answer
    return "".join(one if unicodedata.ucd_3_2_0.category(one) != "Cn" else "\ufffd" for one in answer)


def nesting(text: str) -> int:
    """Return how deep brackets of any kind are nested; a closing bracket without an opening one does not count."""
    deepest = depth = 0
    for character in text:
        if character in "{([":
            depth += 1
            deepest = max(deepest, depth)
        elif character in "})]":
            depth = max(0, depth - 1)
    return deepest
