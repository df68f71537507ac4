r"""Read a mathematical answer, LaTeX or plain text, into a tree; whole or not at all.

A scorer that reads a part of a text makes wrong answers right: `2, 4, \dots, 100` is no 100. So every character of the
text must have a meaning here; anything else raises `Unreadable`.

Trees are lists whose first element names the node, so that they are JSON:
["num", "1.50"], ["sym", "x_1"], ["const", "pi" | "e" | "i" | "oo" | "empty"], ["add" | "mul" | "div" | "pow", a, b],
["neg", a], ["fn", name, a, …], ["list", …] (no order), ["tuple", "(", ")", …], ["rel", [operators], [terms]],
["matrix", [rows]], ["ratio", a, b, …], ["quantity", [a, unit], …], ["percent", a], ["text", letters].
"""

import functools
import re
from collections.abc import Callable, Iterator
from typing import Any

Tree = list[Any]
MAX_CHARS, MAX_DEPTH = 1_000, 24
# Calls of the parser within one another, and operations of a text: together they bound the depth of a tree
MAX_NESTED, MAX_OPERATIONS = 60, 120


class Unreadable(ValueError):
    """A text that has no meaning as a whole."""


_UNICODE = {
    "−": "-", "–": "-", "×": r"\times ", "÷": r"\div ", "·": r"\cdot ", "∙": r"\cdot ", "⋅": r"\cdot ", "∗": "*",
    "≤": r"\le ", "≥": r"\ge ", "≠": r"\ne ", "≈": r"\approx ", "∞": r"\infty ", "π": r"\pi ",
    "±": r"\pm ", "∅": r"\emptyset ", "∪": r"\cup ", "∈": r"\in ", "θ": r"\theta ", "α": r"\alpha ", "β": r"\beta ",
    "γ": r"\gamma ", "λ": r"\lambda ", "μ": r"\mu ", "φ": r"\phi ", "ω": r"\omega ", "Δ": r"\Delta ",
    "½": r"\frac{1}{2}", "⅓": r"\frac{1}{3}", "⅔": r"\frac{2}{3}", "¼": r"\frac{1}{4}", "¾": r"\frac{3}{4}",
    "，": ",", "；": ";", "（": "(", "）": ")", "＝": "=", "％": r"\%", "\u00a0": " ", "\u2009": " ", "\u202f": " ",
    "\u3000": " ", "\u200b": "", "\ufeff": "", "€": r"\text{€}", "£": r"\text{£}", "¥": r"\text{¥}", "⟨": r"\langle ",
    "⟩": r"\rangle ",
}  # fmt: skip
_POWERS, _INDICES = "⁰¹²³⁴⁵⁶⁷⁸⁹⁻⁺", "₀₁₂₃₄₅₆₇₈₉"
_DIGITS = str.maketrans(_POWERS + _INDICES, "0123456789-+0123456789")
_FULL_WIDTH = {code: code - 0xFEE0 for code in range(0xFF01, 0xFF5F)}
_SIZES = "left|right|bigl?|bigr?|Bigl?|Bigr?|biggl?|biggr?|displaystyle|textstyle|limits|nolimits|rm|bf|it"
_DROPPED = re.compile(rf"(?<!\\)\\(?:(?:{_SIZES})(?![a-zA-Z])|[,;:!> ])\s?")
_CURRENCY = re.compile(r"([€£¥])\s*(\d+(?:[.,]\d+)*)")
_ORNAMENT = re.compile(
    r"\\(?:text)?color\s*\{[a-zA-Z]+\}|(?<!\^)(?<!\^\{)\\underline(?=\s*\{)|\\(?:boldsymbol|pmb)(?=\s*\{)"
)
_SPACED = re.compile(r"(?<![\d.])\d{1,3}(?:(?:\{,\}|\\,|\\ |~|\\;|\s)\d{3})+(?![\d])")
_COMMAS = re.compile(r"\d{1,3}(?:,\d{3})+(?:\.\d+)?(?!\d|,\d)")
_REPEATING = re.compile(r"(\d*)\.(\d*)(?:\\(?:overline|bar)\s*\{(\d+)\}|\\(?:dot|bar)\s*\{?(\d)\}?|(?<=\.)\((\d+)\))")
_NUMBER = re.compile(r"(?:\d+(?:\.\d+)?|\.\d+)(?:[eE][+-]?\d{1,4}(?![\d.a-zA-Z{]))?")
_TEXT = re.compile(r"\\(?:text|textbf|textit|textrm|mathrm|mathbf|mathit|mathsf|mbox|operatorname)\s*\{([^{}]*)\}")
_ARITHMETIC = re.compile(r"[\d\s.,+*/^()=%-]*\d[\d\s.,+*/^()=%-]*")
_LETTERS = re.compile(r"[A-Za-z]+")
_OTHER = re.compile(r"\\(?:[a-zA-Z]+|.)|.", re.S)
_MATRIX = re.compile(
    r"\\begin\{([pbvBV]?matrix|cases|array|aligned|gathered)\}(?:\s*\{[lcr| ]*\})?(.*?)\\end\{\1\}", re.S
)


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


_FUNCTIONS = _names(
    "sin cos tan cot sec csc arcsin arccos arctan sinh cosh tanh ln log lg exp max min gcd lcm floor ceil sqrt"
)
_OF_ANGLES = _names("sin cos tan cot sec csc")
_GREEK = _names(
    """alpha beta gamma delta epsilon varepsilon zeta eta theta vartheta iota kappa lambda mu nu xi rho sigma tau
    upsilon phi varphi chi psi omega Gamma Delta Theta Lambda Xi Sigma Phi Psi Omega ell"""
)
_UNITS = _names(
    """mm cm dm km kg mg ml kJ Hz kHz mph hours hour minutes minute seconds second days day weeks week years year meters
    meter metres metre centimeters miles mile feet foot inches inch ft yards dollars dollar cents cent degrees degree
    radians units unit percent grams gram liters liter square cubic"""
)
# What changes the number before it, or hedges, is no unit: 5 million is not 5, nor is `5 or six`
_NO_UNITS = _names(
    """or nor not no neither either but except if when where maybe perhaps to than less fewer more least most about
    around approximately roughly nearly almost over under above below between minus plus times negative half halves
    third thirds quarter quarters fourth fourths fifth fifths tenth tenths hundredth hundredths thousandth thousandths
    dozen dozens hundred hundreds thousand thousands million millions billion billions trillion trillions bn mn tn mil
    squared cubed factorial mod modulo pi infinity zero one two three four five six seven eight nine ten eleven twelve
    thirteen fourteen fifteen sixteen seventeen eighteen nineteen twenty thirty forty fifty sixty seventy eighty
    ninety"""
)
_UNIT_NAMES = {
    "centimeters": "cm", "centimeter": "cm", "kilometers": "km", "kilometer": "km", "kilograms": "kg", "grams": "g",
    "gram": "g", "liters": "l", "liter": "l", "metres": "m", "metre": "m", "meters": "m", "meter": "m", "feet": "ft",
    "foot": "ft", "inches": "in", "inch": "in", "sec": "s", "min": "minute", "°": "degree", "°C": "celsius",
    "°F": "fahrenheit", "degreeC": "celsius", "degreeF": "fahrenheit",
}  # fmt: skip
_RELATIONS = {
    "=": "=", "<": "<", ">": ">", r"\le": "<=", r"\leq": "<=", r"\leqslant": "<=", r"\ge": ">=", r"\geq": ">=",
    r"\geqslant": ">=", r"\ne": "!=", r"\neq": "!=", r"\approx": "=", r"\in": "in", r"\lt": "<", r"\gt": ">",
}  # fmt: skip
_CONSTANTS = {r"\pi": "pi", r"\infty": "oo", r"\emptyset": "empty", r"\varnothing": "empty"}
_WORDS = {"pi": r"\pi", "infinity": r"\infty", "inf": r"\infty", "oo": r"\infty", "theta": r"\theta"}
_CLOSING = {"(": ")", "[": "]", r"\{": r"\}", r"\langle": r"\rangle", r"\lfloor": r"\rfloor", r"\lceil": r"\rceil"}
_MARKS = (r"\vec", r"\hat", r"\bar", r"\tilde", r"\overline", r"\overrightarrow")
_FACTORS = frozenset((*_MARKS, "(", "{", r"\frac", r"\sqrt", r"\binom", r"\{", r"\lfloor", r"\lceil", *_CONSTANTS))
_LEAD = re.compile(
    r"^(?:#{2,}\s*|=\s*|(\\text\{)?(?:so |thus |hence |therefore,? )?(?:the )?(?:correct |final )?"
    r"(?:answer|option|choice)\**\s*(?:is\b|:)\**\s*:?\s*(?(1)\})|(?:option|choice)\s+(?=\(?[A-Z]\b))",
    re.IGNORECASE,
)


def plain(text: str) -> str:
    """Return the text without ornaments around it: dollars, asterisks, a full stop at its end, `The answer is`."""
    for _ in range(8):
        before, text = text, _LEAD.sub("", text.strip()).strip()
        if text.endswith("\\") and not text.endswith(r"\\"):  # of a space, `\ `, whose blank is stripped
            text = text[:-1].rstrip()
        for mark in ("$$", "$", "**", "__", "`"):
            if len(text) > 2 * len(mark) and text.startswith(mark) and text.endswith(mark):
                text = text[len(mark) : -len(mark)].strip()
        if text.startswith((r"\(", r"\[")) and text.endswith((r"\)", r"\]")):
            text = text[2:-2].strip()
        if text.endswith(("。", "．")) or (text.endswith(".") and not text.endswith((r"\right.", "..."))):
            text = text[:-1].strip()
        if text == before:
            break
    return text


def read(text: str) -> Tree:
    """Return the tree of a whole text. Raise Unreadable where any part of it has no meaning."""
    if len(text) > MAX_CHARS or nesting(text) > MAX_DEPTH:
        raise Unreadable("it is too long or too deep")
    text = plain(text)
    if not text:
        raise Unreadable("it says nothing")
    return _Reader(list(_tokens(_spelled(text)))).whole()


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


def _spelled(text: str) -> str:
    """Return the text with one spelling for what has many."""
    text = _CURRENCY.sub(r"\\!\2\1", _ORNAMENT.sub("", text))  # \!: it never joins digits before it
    for character, latex in _UNICODE.items():
        text = text.replace(character, latex)
    text = re.sub(r"\\(?:mathrm|mathbf|mathit|text)\s+([A-Za-z])(?![A-Za-z])", r"\1", text)
    text = text.translate(_FULL_WIDTH).replace("∛", r"\sqrt[3]")
    text = re.sub(r"\\mathbb(?: R|\{R\})", r"(-\\infty, \\infty)", text)
    text = re.sub(f"[{_POWERS}]+", lambda match: "^{" + match[0].translate(_DIGITS) + "}", text)
    text = re.sub(f"[{_INDICES}]+", lambda match: "_{" + match[0].translate(_DIGITS) + "}", text)
    text = re.sub(
        r"√\s*(?:(\d+|[a-zA-Z])|(?=[({]))", lambda match: rf"\sqrt{{{match[1]}}}" if match[1] else r"\sqrt", text
    )
    text = re.sub(r"\\[dtc](frac|binom)(?![a-zA-Z])", r"\\\1", text)
    text = re.sub(r"\\degree(?![a-zA-Z])|\^\s*(?:\\circ(?![a-zA-Z])|\{\s*\\circ\s*\})", "°", text)
    text = text.replace("**", "^").replace(r"\lbrace", r"\{").replace(r"\rbrace", r"\}")
    text = _SPACED.sub(lambda match: re.sub(r"\D", "", match[0]), text)
    text = _REPEATING.sub(_repeated, text)
    text = re.sub(r"\\left\s*\.|\\right\s*\.", "", text)
    return _DROPPED.sub(" ", text)


def _repeated(match: re.Match[str]) -> str:
    whole, fixed, period = match[1] or "0", match[2], match[3] or match[4] or match[5]
    below = (10 ** len(period) - 1) * 10 ** len(fixed)
    above = int(whole + fixed + period) - int(whole + fixed)
    return rf"(\frac{{{above}}}{{{below}}})"


# Kind and text: num, word (letters of a \text), name (bare letters), env (a matrix), op (anything else), end
Token = tuple[str, str]


def _tokens(text: str) -> Iterator[Token]:
    at, depth = 0, 0
    while at < len(text):
        if text[at].isspace() or text[at] == "~":
            at += 1
            continue
        if match := _MATRIX.match(text, at):
            yield "env", match[0]
        elif (depth == 0 and (match := _COMMAS.match(text, at))) or (match := _NUMBER.match(text, at)):
            yield "num", match[0].replace(",", "")
        elif match := _TEXT.match(text, at):
            if match[1].strip().startswith(("\\", ":")) or _ARITHMETIC.fullmatch(match[1]):
                yield from _tokens(match[1].strip())
            else:
                yield "word", match[1]
        elif match := _LETTERS.match(text, at):
            yield "name", match[0]
        else:
            match = _OTHER.match(text, at)
            assert match is not None
            yield "op", match[0]
            depth += {"(": 1, "[": 1, r"\{": 1, ")": -1, "]": -1, r"\}": -1}.get(match[0], 0)
        at = match.end()


def _nested(method: Callable[..., Tree]) -> Callable[..., Tree]:
    """Let a method of a reader nest within itself so often: the interpreter's own limit depends on who calls."""

    @functools.wraps(method)
    def bounded(reader: "_Reader", *args: Any, **kwargs: Any) -> Tree:
        reader.depth += 1
        if reader.depth > MAX_NESTED:
            raise Unreadable("it is nested too deeply")
        tree = method(reader, *args, **kwargs)
        reader.depth -= 1
        return tree

    return bounded


class _Reader:
    """A parser by recursive descent over tokens. Anything that it raises ends it."""

    def __init__(self, tokens: list[Token]) -> None:
        self._tokens, self._at, self.depth, self._operations = [*tokens, ("end", "")], 0, 0, 0

    def whole(self) -> Tree:
        if (word := self._one_word()) is not None:
            return word
        tree = self._items(("end",))
        if self._peek()[0] != "end":
            raise Unreadable(f"`{self._peek()[1][:40]}` has no meaning here")
        return tree

    def _peek(self) -> Token:
        return self._tokens[self._at]

    def _next(self) -> Token:
        token = self._tokens[self._at]
        self._at += token[0] != "end"
        return token

    def _takes(self, *texts: str) -> bool:
        kind, text = self._tokens[self._at]
        is_taken = kind in ("op", "name") and text in texts
        self._at += is_taken
        return is_taken

    def _expect(self, text: str) -> None:
        if not self._takes(text):
            raise Unreadable(f"`{text}` is missing")

    def _count(self) -> None:
        """Count an operation whose tree encloses the one before it."""
        self._operations += 1
        if self._operations > MAX_OPERATIONS:
            raise Unreadable("it has too many operations")

    # Structure

    def _one_word(self) -> Tree | None:
        """Return a text of nothing but letters as a word, whose letters keep their order; None for anything else."""
        parts = [token for token in self._tokens[:-1] if token[1] not in (r"\cdot", r"\times", "*")]
        letters = re.sub(r"\s", "", "".join(text for _, text in parts))
        if not parts or not {kind for kind, _ in parts} <= {"word", "name"} or len(letters) < 2:
            return None
        known = letters in _FUNCTIONS or letters in _WORDS or letters.lower() in ("and", "or")
        if known or not re.fullmatch(r"[A-Za-z'’.-]+", letters):
            return None
        return ["text", letters.lower().rstrip(".")]

    def _is_conjunction(self) -> bool:
        kind, text = self._peek()
        return kind in ("word", "name") and text.strip().lower() in ("and", "or")

    def _skip_space(self) -> None:
        while self._takes(r"\quad", r"\qquad"):
            pass

    def _items(self, ends: tuple[str, ...]) -> Tree:
        """Return terms with commas, semicolons, `and` or `or` between them: one term, or a list without order."""
        items = list[Tree]()
        while True:
            self._skip_space()
            items += _plus_minus(self._item())
            self._skip_space()
            separated = self._takes(",", ";", r"\\")
            self._skip_space()
            if self._is_conjunction():
                self._next()
                separated = True
            if not separated:
                return items[0] if len(items) == 1 else ["list", *items]
            if self._peek()[0] == "end" or self._peek()[1] in ends:
                raise Unreadable("nothing follows the last comma")

    def _item(self) -> Tree:
        """Return a term, a ratio, or a chain of terms with relations between them."""
        terms, operators = [self._quantity()], list[str]()
        while self._peek()[0] == "op" and self._peek()[1] in _RELATIONS:
            is_hint = self._peek()[1] == r"\approx" and _is_number(terms[-1])
            operator, term = _RELATIONS[self._next()[1]], self._quantity()
            if is_hint and _is_number(term) and self._peek()[1] not in _RELATIONS:
                break  # \frac{5}{6} \approx 0.833 answers 5/6
            operators.append(operator)
            terms.append(term)
        if operators:
            return ["rel", operators, terms]
        while self._takes(":"):
            terms.append(self._quantity())
        return ["ratio", *terms] if len(terms) > 1 else terms[0]

    def _quantity(self) -> Tree:
        """Return a sum, with its unit if there is one: 5 cm, 5 hours 30 minutes, 5 km/h."""
        kind, text = self._peek()
        is_word = kind == "name" and len(text) > 3 and text not in _UNITS and self._tokens[self._at + 1][0] == "num"
        if (is_word or kind == "word") and not _is_function(text) and not re.fullmatch(r"\s*[A-Za-z]\s*", text):
            return self._named()
        money = self._takes(r"\$")
        value = self._sum()
        unit = self._unit() or ("dollar" if money else "")
        if unit in ("a.m", "p.m", "A.M", "P.M", "AM", "PM"):  # a time without it may be the other one
            return ["fn", f"named {unit.replace('.', '').lower()}", value]
        if unit in ("", "percent", "per cent"):
            return ["percent", value] if unit else value
        parts = [[value, unit]]
        while self._peek()[0] == "num":
            parts.append([self._sum(), self._unit()])
            if not parts[-1][1]:
                raise Unreadable("a number has no unit beside one that has")
        return ["quantity", *parts]

    def _named(self) -> Tree:
        """Return what stands in a \\text: a letter of a choice, or words."""
        words = [self._next()[1]]
        while self._peek()[0] in ("word", "name", "num") and not self._is_conjunction():
            words.append(self._next()[1])
        text = " ".join(" ".join(words).split())
        if inner := re.fullmatch(r"\(?([A-Za-z])\)?[.:]?", text):
            return ["sym", inner[1]]
        if not re.fullmatch(r"[^\W\d_][\w '’.,-]*", text):
            raise Unreadable(f"`{text[:40]}` has no meaning as text")
        return ["text", re.sub(r"(?<!\d)\s|\s(?!\d)", "", text).lower().rstrip(".")]

    def _unit(self) -> str:
        """Return the unit that follows, in one spelling; empty where none does."""
        unit = ""
        while True:
            kind, text = self._peek()
            is_name = text in _UNITS or unit.endswith("/") or (len(text) > 3 and not _is_function(text))
            is_name = is_name or (unit == "degree" and text in ("C", "F"))
            if kind == "word" or (kind == "name" and is_name):
                if self._is_conjunction() or not re.fullmatch(r"[A-Za-z€£¥°. /²³]+", text.strip() or "!"):
                    break
                self._next()
                words = " ".join(text.split()).removesuffix(" and")
                if _NO_UNITS & set(re.split(r"[ /]", words.lower())):
                    raise Unreadable(f"`{words[:40]}` is no unit")
                unit += _UNIT_NAMES.get(words, words.rstrip("s.") if len(words) > 3 else words.rstrip("."))
                unit += self._unit_power()
            elif text == "°" and not unit:
                self._next()
                unit = "degree"
            elif text == "/" and unit and self._tokens[self._at + 1][0] in ("word", "name"):
                self._next()
                unit += "/"
            else:
                break
        return _UNIT_NAMES.get(unit, unit)

    def _unit_power(self) -> str:
        if not self._takes("^"):
            return ""
        braced = self._takes("{")
        kind, power = self._next()
        if kind != "num" or power not in ("2", "3") or (braced and not self._takes("}")):
            raise Unreadable("a unit's power is 2 or 3")
        return "^" + power

    # Arithmetic

    def _sum(self) -> Tree:
        tree = self._term()
        while True:
            if self._takes("+"):
                tree = ["add", tree, self._term()]
            elif self._takes("-"):
                tree = ["add", tree, ["neg", self._term()]]
            elif self._takes(r"\pm"):
                tree = ["pm", tree, self._term()]
            elif self._takes(r"\cup"):
                tree = ["list", *_parts(tree), *_parts(self._term())]
            else:
                return tree
            self._count()

    @_nested
    def _term(self) -> Tree:
        if self._takes("-"):
            return ["neg", self._term()]
        if self._takes("+"):
            return self._term()
        if self._takes(r"\pm"):
            return ["pm", ["num", "0"], self._term()]
        tree = self._power()
        while True:
            if self._takes("*", r"\cdot", r"\times"):
                tree = ["mul", tree, self._signed()]
            elif self._takes("/", r"\div"):
                tree = ["div", tree, self._signed()]
            elif self._starts_factor():
                tree = self._beside(tree)
            else:
                return tree
            self._count()

    @_nested
    def _signed(self) -> Tree:
        return ["neg", self._signed()] if self._takes("-") else self._power()

    def _beside(self, tree: Tree) -> Tree:
        """Return the product with what stands beside it, or a mixed number: 3 1/2, 3\\frac{1}{2}."""
        is_whole = tree[0] == "num" and tree[1].isdigit()
        if self._peek()[0] == "num" and tree[0] in ("num", "pow", "div"):
            above = self._tokens[self._at][1]
            is_bare = self._tokens[self._at - 1][0] != "op"
            (_, slash), (kind, below) = [*self._tokens[self._at + 1 : self._at + 3], ("end", "")][:2]
            is_fraction = above.isdigit() and slash == "/" and kind == "num" and below.isdigit()
            if not (is_whole and is_bare and is_fraction and 0 < int(above) < int(below)):
                raise Unreadable("two numbers stand side by side")
            self._at += 3
            return ["add", tree, ["div", ["num", above], ["num", below]]]
        if tree[0] == "num" and self._peek() == ("op", "{") and self._tokens[self._at + 1][0] == "num":
            raise Unreadable("two numbers stand side by side")
        is_mixed = is_whole and self._peek() == ("op", r"\frac")
        right = self._power()
        if is_mixed and right[0] == "div" and all(part[0] == "num" and part[1].isdigit() for part in right[1:]):
            return ["add", tree, right]
        return ["mul", tree, right]

    def _starts_factor(self) -> bool:
        kind, text = self._peek()
        if kind == "name":
            is_unit = self._is_conjunction() or text in _UNITS
            return not is_unit and (len(text) <= 3 or _is_function(text))
        if kind == "word":
            return _is_function(text) or bool(re.fullmatch(r"[A-Za-z]", text))
        return kind in ("num", "env") or text in _FACTORS or text[1:] in _GREEK or _is_function(text[1:])

    def _power(self) -> Tree:
        tree = self._primary()
        while True:
            if self._takes("!"):
                tree = ["fn", "factorial", tree]
            elif self._takes("%", r"\%"):
                tree = ["percent", tree]
            elif self._takes("^"):
                tree = ["pow", tree, self._argument(sign=True)]
            else:
                return tree
            self._count()

    @_nested
    def _argument(self, sign: bool = False) -> Tree:
        """Return a braced group, or one number, letter or command; of digits after \\frac or \\sqrt one each."""
        if self._peek() == ("op", "{"):
            return self._primary()
        if sign and self._takes("-"):
            return ["neg", self._argument()]
        kind, text = self._peek()
        if kind == "num" and not sign and len(text) > 1 and text.isdigit():
            self._tokens[self._at] = ("num", text[1:])
            return ["num", text[0]]
        if kind == "name" and len(text) > 1:
            return self._first_letter()
        return self._primary()

    def _first_letter(self) -> Tree:
        name = self._peek()[1].strip()
        self._tokens[self._at] = ("name", name[1:])
        return _letter(name[0])

    @_nested
    def _primary(self) -> Tree:
        kind, text = self._peek()
        if kind in ("name", "word"):
            return self._letters(text.strip())
        self._next()
        if kind == "num":  # with a base it is a name: 1011_2 equals nothing but itself
            return ["sym", f"{text}_{''.join(_flat(self._argument(sign=True)))}"] if self._takes("_") else ["num", text]
        if kind == "env":
            return _environment(text)
        if text in ("{", "|"):
            tree = self._sum()
            if text == "{" and self._takes(r"\over"):
                tree = ["div", tree, self._sum()]
            elif text == "{" and self._takes(r"\choose"):
                tree = ["fn", "binomial", tree, self._sum()]
            self._expect({"{": "}", "|": "|"}[text])
            return tree if text == "{" else ["fn", "abs", tree]
        if text in _CONSTANTS:
            return ["const", _CONSTANTS[text]]
        if text == r"\frac":
            return ["div", self._argument(), self._argument()]
        if text == r"\binom":
            return ["fn", "binomial", self._argument(), self._argument()]
        if text == r"\sqrt":
            index: Tree = ["num", "2"]
            if self._takes("["):
                index = self._sum()
                self._expect("]")
            return ["fn", "root", self._argument(), index]
        if text in _MARKS:
            return ["sym", f"{text[1:]} {' '.join(_flat(self._argument()))}"]
        if text in _CLOSING or text == "]":
            return self._bracket(text)
        if text[1:] in _FUNCTIONS:
            return self._function(text[1:])
        if text[1:] in _GREEK and text.startswith("\\"):
            return self._indexed(text[1:])
        raise Unreadable(f"`{text[:40] or 'nothing'}` has no meaning here")

    def _letters(self, text: str) -> Tree:
        if text in _FUNCTIONS or text in _WORDS:
            self._next()
            if text in _FUNCTIONS:
                return self._function(text)
            return ["const", _CONSTANTS[_WORDS[text]]] if _WORDS[text] in _CONSTANTS else ["sym", text]
        if not text.isalpha() or not text.isascii() or len(text) > 3:
            raise Unreadable(f"`{text[:40]}` has no meaning here")
        if len(text) > 1:
            return self._first_letter()
        self._next()
        return self._indexed(text)

    def _indexed(self, name: str) -> Tree:
        """Return a letter with its index, or a function of an argument: f(x)."""
        if self._takes("_"):
            return ["sym", f"{name}_{''.join(_flat(self._argument(sign=True)))}"]
        while self._takes("'"):
            name += "'"
        if name in ("f", "g", "h", "P", "Q") and self._takes("("):
            inner = self._items((")",))
            self._expect(")")
            return ["fn", f"named {name}", *_parts(inner)]
        return _letter(name)

    def _function(self, name: str) -> Tree:
        base = [self._argument()] if self._takes("_") else []
        power = self._argument(sign=True) if self._takes("^") else None
        if self._takes("_"):
            base = [self._argument()]
        closing = {"(": ")", "{": "}"}.get(self._peek()[1])
        if closing:
            self._next()
            arguments = _parts(self._items((closing,)))
            self._expect(closing)
        else:
            arguments = [self._function_argument()]
        if name in _OF_ANGLES and (self._takes("°") or arguments[0][0] == "quantity"):
            arguments = [_in_radians(arguments[0])]
        if power == ["neg", ["num", "1"]]:
            name, power = "arc" + name, None
        tree: Tree = ["fn", name, *arguments, *base]
        return tree if power is None else ["pow", tree, power]

    def _function_argument(self) -> Tree:
        """Return what a function without brackets takes: the factors that follow, up to a sign or another function."""
        tree = self._signed()
        while self._starts_factor() and self._peek()[1] != "(" and not _is_function(self._peek()[1].strip("\\ ")):
            if self._peek()[0] == "num":
                raise Unreadable("two numbers stand side by side")
            self._count()
            tree = ["mul", tree, self._power()]
        return tree

    def _bracket(self, opening: str) -> Tree:
        if opening == r"\{" and self._takes(r"\}"):
            return ["const", "empty"]
        if opening == r"\{" and self._peek()[0] == "env":
            system = self._primary()
            if self._peek()[0] != "end":
                raise Unreadable("something follows a system of equations")
            return system
        items = _parts(self._items((*_CLOSING.values(),)))
        closing = self._next()[1]
        if opening == r"\{" and closing == r"\}":
            return ["list", *items]
        if opening in (r"\lfloor", r"\lceil") and closing == _CLOSING[opening] and len(items) == 1:
            return ["fn", {"f": "floor", "c": "ceil"}[opening[2]], items[0]]
        is_angle = opening == r"\langle"
        if opening == closing == "]" or closing not in (")", "]", r"\rangle") or is_angle != (closing == r"\rangle"):
            raise Unreadable(f"`{opening}` is not closed")
        if len(items) == 1 and (opening, closing) == ("(", ")") and items[0][0] != "list":
            return items[0]
        return ["tuple", opening, closing, *items]


def _is_function(name: str) -> bool:
    return name.strip() in _FUNCTIONS or name.strip() in _WORDS


def _is_number(tree: Any) -> bool:
    """Whether no letter or function of an unknown name is in a tree."""
    if isinstance(tree, list):
        return tree[:1] not in (["sym"], ["text"]) and all(map(_is_number, tree))
    return not str(tree).startswith("named ")


def _letter(name: str) -> Tree:
    return ["const", name] if name in ("e", "i") else ["sym", name]


def _parts(tree: Tree) -> list[Tree]:
    return tree[1:] if tree[0] == "list" else [tree]


def _flat(tree: Any) -> Iterator[str]:
    if isinstance(tree, list):
        for part in tree[1:] if tree and tree[0] in ("num", "sym", "const") else tree:
            yield from _flat(part)
    else:
        yield str(tree)


def _in_radians(angle: Tree) -> Tree:
    """Return the radians of an angle in degrees: a number, or a quantity."""
    if angle[0] == "quantity":
        if len(angle) != 2 or angle[1][1] != "degree":
            raise Unreadable("an angle has a unit of something else")
        angle = angle[1][0]
    return ["div", ["mul", angle, ["const", "pi"]], ["num", "180"]]


def _plus_minus(tree: Tree) -> list[Tree]:
    """Return a term, or the two that a ± in it stands for."""
    both = [_chosen(tree, sign) for sign in (False, True)]
    return both[:1] if both[0] == both[1] else both


def _chosen(tree: Any, minus: bool) -> Any:
    if not isinstance(tree, list):
        return tree
    if tree[:1] == ["pm"]:
        left, right = (_chosen(part, minus) for part in tree[1:])
        return ["add", left, ["neg", right] if minus else right]
    return [_chosen(part, minus) for part in tree]


def _environment(text: str) -> Tree:
    """Return a matrix, or the equations of `cases`."""
    match = _MATRIX.fullmatch(text)
    if match is None or "\\begin" in match[2]:
        raise Unreadable("a matrix within a matrix")
    rows = [row for row in re.split(r"\\\\(?:\[[^\]]*\])?", match[2]) if row.strip()]
    if match[1] in ("vmatrix", "Vmatrix", "Bmatrix") or not rows:
        raise Unreadable(f"`{match[1]}` has no meaning as an answer")
    if match[1].endswith("matrix"):
        return ["matrix", [[read(cell) for cell in row.split("&")] for row in rows]]
    lines = [read(row.replace("&", " ").strip().rstrip(",;")) for row in rows]
    return lines[0] if len(lines) == 1 else ["list", *lines]
