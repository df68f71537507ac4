"""Which answers the scorers of reasoning_gym see: those of a known form that cannot mislead, run or choke a scorer."""

import ast
import json
import operator
import re
import unicodedata
from collections.abc import Callable, Mapping
from fractions import Fraction
from functools import partial

from environments.scorers.latex import nesting

# Agreement with the reference. A scorer that takes any four numbers for the puzzle's, `nan` for every number, or a
# shifted target for a shifted box would reward knowing the scorer. Such a scorer sees an answer only if one of these
# functions accepts it. Each takes an answer and the reference; hostile text may make it raise.


def _same_word(answer: str, reference: str) -> bool:
    return answer.strip().lower() == reference.strip().lower()


def _same_list(answer: str, reference: str) -> bool:
    """Compare lists of numbers, each written as a number or as text."""
    given, right = ([float(item) for item in json.loads(text.replace("'", '"'))] for text in (answer, reference))
    return given == right


def _same_number(answer: str, reference: str, within: Fraction = Fraction(0)) -> bool:
    """Compare numbers with their signs, which some scorer overlooks."""
    return abs(Fraction(answer.strip()) - Fraction(reference)) <= within


def _no_longer(answer: str, reference: str) -> bool:
    """Refuse trailing items, which a scorer that compares position by position would not see."""
    given, right = (re.split(r"[ \t\r\n,]+", text.strip()) for text in (answer, reference))
    return len(given) <= len(right) and (len(right) > 1 or len(answer.strip()) <= len(reference))


def _makes_24(answer: str, reference: str) -> bool:
    """Return whether a formula of exactly the reference's numbers has the value 24."""
    if sorted(re.findall(r"[0-9]+", answer)) != sorted(re.findall(r"[0-9]+", reference)):
        return False
    return _value(ast.parse(answer.strip(), mode="eval").body) == 24


_OPERATORS: Mapping[type[ast.operator], Callable[[Fraction, Fraction], Fraction]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}


def _value(formula: ast.expr) -> Fraction:
    """Return the value of a formula of + - * /. Raise ValueError for anything else."""
    match formula:
        case ast.Constant(value=int(number)):
            return Fraction(number)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_value(operand)
        case ast.BinOp(left=left, op=sign, right=right) if type(sign) in _OPERATORS:
            return _OPERATORS[type(sign)](_value(left), _value(right))
    raise ValueError


def _moves_no_target(answer: str, _: str) -> bool:
    """Whether a plan moves boxes to targets, and not the other way round."""
    moves = [move for step in json.loads(answer) for move in step.values()]
    return not any(isinstance(move, str) and move.startswith("move(target") for move in moves)


AGREEMENTS: Mapping[str, Callable[[str, str], bool]] = {
    "boxnet": _moves_no_target,
    "coin_flip": partial(_same_number, within=Fraction(1, 10_000)),
    "figlet_font": lambda answer, reference: _same_word(answer.replace(" ", ""), reference),
    "game_of_life_halting": _same_word,
    "gsm_symbolic": _same_number,
    "letter_jumble": _no_longer,
    "number_sorting": _same_list,
    "puzzle24": _makes_24,
    "spell_backward": _no_longer,
    "word_sorting": _no_longer,
}


# Forms of answers. Some scorers evaluate the answer as code, have no bound on their time, or find an answer in any
# prose around it. They see only a list, a number, a formula or moves that cannot name anything of the interpreter and
# are cheap to evaluate; what has another form is worth nothing. Each pattern matches a text in one way only, so
# matching is linear without possessive quantifiers or atomic groups, which CPython 3.11.2 gets wrong.


_SPACES = r"[ \t\r\n]"
_LIST = re.compile(rf"""\[(?:{_SPACES}|[\[\],0-9-]|"[^"\\\n]*"|'[^'\\\n]*')*""")
_SUM = re.compile(r"(?:[0-9+\-() ]|\*(?!\*)|/(?!/))*")
_TURNS = re.compile(rf"(?:[UDLRFBMESXYZudlrfbxyz]w?(?:'[0-9]?'?|[0-9]'?)?(?:{_SPACES}+|\Z))*")
_POWER = r"(?<=[a-zX0-9])\*\*[0-9]{1,2}(?![0-9]|\*\*)"
_LETTER = r"(?<![0-9])[a-zX](?![a-zA-Z(])|C(?![a-zA-Z(])"
_POLYNOMIAL = re.compile(rf"(?:[ +\-()0-9]|{_LETTER}|/(?=[0-9])|{_POWER}|\*(?!\*))*")

_DECIMAL = r"-?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)"
_FRACTION = re.compile(r"\$? *-?(?:\\[dt]?frac *\{ *-?[0-9]+ *\} *\{ *[0-9]+ *\}|[0-9]+(?: */ *[0-9]+)?) *\$?")
_GRID = re.compile(r"[0-9 \t\r\n]*")

ANSWER_FORMS: dict[str, tuple[re.Pattern[str], int]] = {
    "advanced_geometry": (re.compile(rf"{_DECIMAL}°?|\( *{_DECIMAL}, *{_DECIMAL} *\)"), 100),
    "binary_matrix": (_LIST, 4096),
    "coin_flip": (re.compile(rf"{_SPACES}*[0-9.,/\-]{{1,40}}{_SPACES}*"), 64),
    "complex_arithmetic": (re.compile(r"[ \t\r\n0-9.+\-ij()]*"), 200),
    "countdown": (_SUM, 200),
    "fraction_simplification": (_FRACTION, 100),
    "gsm_symbolic": (re.compile(_DECIMAL), 40),
    "kakurasu": (_GRID, 4096),
    "n_queens": (_LIST, 4096),
    "polynomial_equations": (re.compile(rf"(?:{_DECIMAL}(?:,{_SPACES}*|\Z))*"), 400),
    "polynomial_multiplication": (_POLYNOMIAL, 1000),
    "puzzle24": (_SUM, 200),
    "rubiks_cube": (_TURNS, 1000),
    "rush_hour": (re.compile(rf"(?:[A-Z][+-][0-9](?![0-9])|{_SPACES}|,)*"), 1000),
    "simple_integration": (_POLYNOMIAL, 200),
    "sokoban": (re.compile(r"[LRUD \t\r\n]*"), 1000),
    "spiral_matrix": (_LIST, 4096),
    "string_insertion": (_LIST, 4096),
    "survo": (_GRID, 4096),
    "time_intervals": (re.compile(r"[0-9:.]+(?: *d(?:ays?)?(?:, *[0-9:.]+)?)?", re.IGNORECASE), 64),
}
# Of brackets and of signs in a row: parsers of different Python versions give up at different depths
MAX_DEPTH = 64
_SIGNS = re.compile(rf"[-+~]{{{MAX_DEPTH}}}")


def may_be_scored(dataset: str, answer: str, reference: str) -> bool:
    """Whether a dataset's scorer may see an answer; the reference itself always may."""
    if answer == reference:
        return True
    if nesting(answer) > MAX_DEPTH or _SIGNS.search(answer):
        return False
    if dataset in ANSWER_FORMS:
        form, longest = ANSWER_FORMS[dataset]
        if len(answer) > longest or form.fullmatch(answer.strip()) is None:
            return False
    try:
        return dataset not in AGREEMENTS or AGREEMENTS[dataset](answer, reference)
    except (ValueError, TypeError, AttributeError, ArithmeticError, SyntaxError, RecursionError, MemoryError):
        return False


def portable(answer: str) -> str:
    """Return the answer with U+FFFD for characters that Unicode 3.2 lacks: which digits, letters and spaces there are
    since depends on the version of Python."""
    if answer.isascii():
        return answer
    return "".join("\ufffd" if unicodedata.ucd_3_2_0.category(letter) == "Cn" else letter for letter in answer)
