"""The form an answer must have before scorers see it that evaluate it as code or have no bound on their time.

Such an answer is a list, a number or a formula that cannot name anything of the interpreter and is cheap to evaluate;
what has another form is worth nothing. Patterns have possessive quantifiers only, so that matching is linear.
"""

import re

_SPACES = r"[ \t\r\n]"
_LIST = re.compile(rf"""\[(?:{_SPACES}|[\[\],0-9-]|"[^"\\\n]*+"|'[^'\\\n]*+')*+""")
_SUM = re.compile(r"[0-9+\-/() ]*+(?:\*(?!\*)[0-9+\-/() ]*+)*+")
_NUMBER = re.compile(rf"{_SPACES}*+[0-9.,/\-]{{1,40}}+{_SPACES}*+")
_LOGIC = re.compile(r"[A-Z∧∨¬→↔() ]*+")
_POWER = r"(?<=[a-zX0-9])\*\*[0-9]{1,2}(?![0-9*])"
_LETTER = r"(?<![0-9])[a-zX](?![a-zA-Z(])|C(?![a-zA-Z(])"
_POLYNOMIAL = re.compile(rf"(?:[ +\-()]|[0-9]++|{_LETTER}|/(?=[0-9])|{_POWER}|\*(?!\*))*+")

_FORMS: dict[str, tuple[re.Pattern[str], int]] = {
    "binary_matrix": (_LIST, 4096),
    "coin_flip": (_NUMBER, 64),
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


def may_be_scored(dataset: str, answer: str, reference: str) -> bool:
    """Whether a dataset's scorer may see an answer; the reference itself always may."""
    if dataset not in _FORMS or answer == reference:
        return True
    form, longest = _FORMS[dataset]
    return len(answer) <= longest and form.fullmatch(answer.strip()) is not None
