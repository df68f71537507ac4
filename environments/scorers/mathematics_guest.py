"""Decide whether two trees (latex.py) are equal as mathematics: it runs inside the sandbox only, as
`muster_mathematics`."""

import hashlib
import json
import sys
import types
from itertools import pairwise
from typing import Any

_ctypes = types.ModuleType("ctypes")  # WASI has none; sympy asks it for the size of a C `long`
_ctypes.c_long, _ctypes.sizeof = object, lambda _: 8  # type: ignore[attr-defined]
sys.modules["ctypes"] = _ctypes

import sympy  # type: ignore[import-untyped]  # noqa: E402
from sympy import I, Integer, Rational, oo  # noqa: E402

if hasattr(sys, "set_int_max_str_digits"):
    sys.set_int_max_str_digits(4300)
sys.setrecursionlimit(1000)

DIGITS, CLOSE = 60, 45
"""Decimal digits that are computed, and that have to agree."""
POINTS = 6
"""At which formulas with letters are compared."""
_CONSTANTS = {"pi": sympy.pi, "e": sympy.E, "i": I, "oo": oo, "empty": sympy.EmptySet}
_FLIPPED = {"<": ">", ">": "<", "<=": ">=", ">=": "<=", "=": "=", "!=": "!=", "in": "in"}
_SIMPLE = {
    "abs": sympy.Abs, "factorial": sympy.factorial, "binomial": sympy.binomial, "sqrt": sympy.sqrt, "exp": sympy.exp,
    "ln": sympy.log, "arcsin": sympy.asin, "arccos": sympy.acos, "arctan": sympy.atan, "max": sympy.Max,
    "min": sympy.Min, "gcd": sympy.gcd, "lcm": sympy.lcm, "floor": sympy.floor, "ceil": sympy.ceiling,
    **{name: getattr(sympy, name) for name in ("sin", "cos", "tan", "cot", "sec", "csc", "sinh", "cosh", "tanh")},
}  # fmt: skip


class Undecided(Exception):
    """Two values cannot be compared."""


class _Comparison:
    """With one reading of a logarithm without a base."""

    def __init__(self, base: Any, seed: Any) -> None:
        self._base, self._seed = base, seed

    # ---- Structure

    def same(self, wanted: Any, given: Any) -> bool:
        if wanted == given:
            return True
        if "quantity" in (wanted[0], given[0]):
            return self._same_quantity(wanted, given)
        if "percent" in (wanted[0], given[0]):
            return self._same_percent(wanted, given)
        wanted, given = _alone(wanted), _alone(given)
        if "rel" in (wanted[0], given[0]):
            return self._same_relation(wanted, given)
        kinds = {wanted[0], given[0]}
        for kind in ("list", "tuple", "matrix", "ratio", "text"):
            if kind in kinds:
                return kinds == {kind} and getattr(self, f"_same_{kind}")(wanted, given)
        return self.same_value(wanted, given)

    def _same_quantity(self, wanted: Any, given: Any) -> bool:
        """Units have to agree where both have one; of several none may be missing."""
        one, other = _quantities(wanted), _quantities(given)
        if len(one) != len(other):
            return False
        units = all(a == b or (len(one) == 1 and not (a and b)) for (_, a), (_, b) in zip(one, other, strict=True))
        return bool(units) and all(self.same(a, b) for (a, _), (b, _) in zip(one, other, strict=True))

    def _same_percent(self, wanted: Any, given: Any) -> bool:
        if wanted[0] == given[0]:
            return self.same(wanted[1], given[1])
        if wanted[0] == "percent":  # asked for percent, an answer may leave the sign out
            return self.same(wanted[1], given) or self.same(["div", wanted[1], ["num", "100"]], given)
        return self.same(wanted, ["div", given[1], ["num", "100"]])

    def _same_list(self, wanted: Any, given: Any) -> bool:
        """In any order."""
        left = list(given[1:])
        if len(left) != len(wanted) - 1:
            return False
        for one in wanted[1:]:
            for other in left:
                if self.same(one, other):
                    left.remove(other)
                    break
            else:
                return False
        return True

    def _same_tuple(self, wanted: Any, given: Any) -> bool:
        brackets = [[{r"\langle": "(", r"\rangle": ")"}.get(one, one) for one in tree[1:3]] for tree in (wanted, given)]
        return bool(brackets[0] == brackets[1]) and self._all(wanted[3:], given[3:])

    def _same_matrix(self, wanted: Any, given: Any) -> bool:
        return len(wanted[1]) == len(given[1]) and all(
            self._all(a, b) for a, b in zip(wanted[1], given[1], strict=True)
        )

    def _same_ratio(self, wanted: Any, given: Any) -> bool:
        return self._all(wanted[1:], given[1:])

    def _same_text(self, wanted: Any, given: Any) -> bool:
        return bool(wanted == given)

    def _all(self, wanted: Any, given: Any) -> bool:
        return len(wanted) == len(given) and all(self.same(a, b) for a, b in zip(wanted, given, strict=True))

    # ---- Relations

    def _same_relation(self, wanted: Any, given: Any) -> bool:
        one, other = self._side(wanted), self._side(given)
        if one is None or other is None:
            return False
        if "equation" in (one[0], other[0]):
            return self._same_equation(one, other)
        if "order" in (one[0], other[0]):
            return self._same_order(one, other)
        named = one[1] is None or other[1] is None or one[1] == other[1]
        return named and self.same(one[2], other[2])

    def _side(self, tree: Any) -> Any:
        """Return ("value", name or None, tree), ("equation", left, right) or ("order", operators, terms); None for a
        chain that contradicts itself."""
        if tree[0] != "rel":
            return "value", None, tree
        operators, terms = tree[1], tree[2]
        if operators == ["in"] and _is_name(terms[0]):
            return "value", terms[0], terms[1]
        if any(one != "=" for one in operators):
            return "order", operators, terms
        name, rest = (terms[0], terms[1:]) if _is_name(terms[0]) else (None, terms)
        if name is None and len(terms) == 2 and any(_letters(one) for one in terms):
            return "equation", terms[0], terms[1]
        if any(not self.same(a, b) for a, b in pairwise(rest)):
            return None
        return "value", name, rest[-1]

    def _same_equation(self, one: Any, other: Any) -> bool:
        """Whether the differences of both sides are proportional."""
        sides = []
        for kind, left, right in (one, other):
            if kind == "order" or left is None:
                return False
            sides.append(["add", left, ["neg", right]])
        if sum(_letters(side) == _letters(sides[0]) for side in sides) < 2:
            return False
        ratios = [a / b for a, b in self._at_points(*sides) if b != 0 and a != 0]
        return len(ratios) >= 2 and all(_near(ratio, ratios[0]) for ratio in ratios)

    def _same_order(self, one: Any, other: Any) -> bool:
        if one[0] != "order" or other[0] != "order":
            first, second = ((_interval(side) if side[0] == "order" else side[2]) for side in (one, other))
            return first is not None and second is not None and self.same(first, second)
        flipped = [_FLIPPED[operator] for operator in other[1][::-1]], other[2][::-1]
        return any(one[1] == operators and self._all(one[2], terms) for operators, terms in (other[1:], flipped))

    # ---- Values

    def same_value(self, wanted: Any, given: Any) -> bool:
        one, other = self.value(wanted), self.value(given)
        numbers = isinstance(one, sympy.Expr) and isinstance(other, sympy.Expr)
        if not numbers or one.is_infinite or other.is_infinite:
            return bool(one == other)
        if one.is_Rational and other.is_Rational:
            return one == other or _rounded(given, other, one) or _rounded(wanted, one, other)
        if not (one.free_symbols | other.free_symbols):
            left, right = _number(one), _number(other)
            return _near(left, right) or _rounded(given, right, left) or _rounded(wanted, left, right)
        pairs = self._at_points(wanted, given)
        return len(pairs) >= 2 and all(_near(left, right) for left, right in pairs)

    def _at_points(self, wanted: Any, given: Any) -> list[tuple[Any, Any]]:
        """Pairs of values where both letters' values follow from a hash of both trees: nobody can choose them."""
        one, other = self.value(wanted), self.value(given)
        letters = sorted(one.free_symbols | other.free_symbols, key=str)
        found = []
        for point in range(POINTS):
            values = {}
            for letter in letters:
                drawn = int.from_bytes(hashlib.sha256(f"{self._seed} {point} {letter}".encode()).digest()[:4], "big")
                sign = -1 if point % 2 and drawn % 2 else 1
                values[letter] = Rational(sign * (drawn % 9973 + 101), 2003 + drawn % 89)
            try:
                pair = _number(one.subs(values)), _number(other.subs(values))
            except Undecided:
                continue
            found.append(pair)
        return found

    def value(self, tree: Any) -> Any:
        kind = tree[0]
        if kind == "num":
            return Rational(tree[1])
        if kind == "sym":
            return sympy.Symbol(tree[1])
        if kind == "const":
            return _CONSTANTS[tree[1]]
        if kind == "over":
            return self._over(tree)
        if kind == "fn":
            return self._function(tree[1], [self.value(one) for one in tree[2:]])
        if kind not in ("neg", "add", "mul", "div", "pow", "percent"):
            raise Undecided
        values = [self.value(one) for one in tree[1:]]
        if kind == "neg":
            return -values[0]
        if kind == "percent":
            return values[0] / 100
        if kind == "add":
            return values[0] + values[1]
        if kind == "mul":
            return values[0] * values[1]
        return values[0] / values[1] if kind == "div" else values[0] ** values[1]

    def _function(self, name: Any, arguments: Any) -> Any:
        if name == "root":
            return sympy.root(arguments[0], arguments[1])
        if name == "log":
            base = arguments[1] if len(arguments) > 1 else self._base
            return sympy.log(arguments[0]) / sympy.log(base)
        if name == "lg":
            return sympy.log(arguments[0]) / sympy.log(10)
        if name.startswith("named "):
            return sympy.Function(name[6:])(*arguments)
        if name not in _SIMPLE:
            raise Undecided
        return _SIMPLE[name](*arguments)

    def _over(self, tree: Any) -> Any:
        _, kind, body, variable, low, high = tree
        limits = (self.value(variable), self.value(low), self.value(high))
        made = {"integral": sympy.Integral, "sum": sympy.Sum, "product": sympy.Product}[kind](self.value(body), limits)
        return made.doit()


def _alone(tree: Any) -> Any:
    return _alone(tree[1]) if tree[0] == "list" and len(tree) == 2 else tree


def _quantities(tree: Any) -> Any:
    return tree[1:] if tree[0] == "quantity" else [[tree, ""]]


def _is_name(tree: Any) -> bool:
    return tree[0] in ("sym", "text") or (tree[0] == "fn" and tree[1].startswith("named "))


def _letters(tree: Any) -> set[str]:
    """Names of the letters in a tree."""
    if not isinstance(tree, list):
        return set()
    if tree[:1] == ["sym"]:
        return {tree[1]}
    return set().union(*map(_letters, tree)) if tree else set()


def _interval(side: Any) -> Any:
    """x < 3 or 1 < x <= 3 as an interval; None for anything else."""
    _, operators, terms = side
    places = [place for place, term in enumerate(terms) if term[0] == "sym"]
    if len(places) != 1 or sum(bool(_letters(term)) for term in terms) != 1:
        return None
    if operators[0] in (">", ">="):
        operators, terms = [_FLIPPED[one] for one in operators[::-1]], terms[::-1]
    if any(one not in ("<", "<=") for one in operators) or len(terms) > 3:
        return None
    at = next(place for place, term in enumerate(terms) if term[0] == "sym")
    if len(terms) == 3 and at != 1:
        return None
    low, high = (
        (terms[at - 1] if at else ["neg", ["const", "oo"]]),
        (terms[at + 1] if at + 1 < len(terms) else ["const", "oo"]),
    )
    opening = "[" if at and operators[at - 1] == "<=" else "("
    closing = "]" if at + 1 < len(terms) and operators[at] == "<=" else ")"
    return ["tuple", opening, closing, low, high]


def _number(value: Any) -> Any:
    """A value to sixty digits. Raises Undecided for what has none."""
    found = sympy.N(value, DIGITS)
    if not found.is_number or found.has(sympy.nan, sympy.zoo, oo):
        raise Undecided
    real, imaginary = found.as_real_imag()
    if not (real.is_Number and imaginary.is_Number):
        raise Undecided
    return real + I * imaginary


def _near(left: Any, right: Any) -> bool:
    """Whether two numbers agree, relative to the larger one."""
    size = max(abs(left), abs(right))
    if size == 0:
        return True
    if min(abs(left), abs(right)) == 0:  # a hidden zero is computed as something that has no digits
        return bool(size < Rational(1, 10**80)) and any(
            getattr(part, "_prec", 99) <= 1 for part in (left + right).as_real_imag()
        )
    return bool(abs(left - right) * 10**CLOSE <= size)


def _rounded(tree: Any, value: Any, exact: Any) -> bool:
    """Whether a decimal rounds an exact value that no decimal is: to six places at least, with three digits of it."""
    tree = tree[1] if tree[0] == "neg" else tree
    digits = tree[1] if tree[0] == "num" else ""
    whole, point, decimals = digits.partition(".")
    if not point or len(decimals) < 6 or len((whole + decimals).lstrip("0")) < 3:
        return False
    if exact.is_Rational:
        below = exact.q
        for prime in (2, 5):
            while below % prime == 0:
                below //= prime
        if below == 1:
            return False
    return bool(2 * abs(value - exact) * 10 ** len(decimals) <= 1)


def equal(wanted: Any, given: Any) -> bool:
    """Whether the answer's tree equals the reference's."""
    seed = json.dumps([wanted, given])
    for base in (Integer(10), sympy.E) if '"log"' in seed else (Integer(10),):
        try:
            if _Comparison(base, seed).same(wanted, given):
                return True
        except (Undecided, ValueError, TypeError, ArithmeticError, AttributeError, NotImplementedError, RecursionError):
            continue
    return False


def warm() -> None:
    """Compare one pair of each kind, which builds caches."""
    x, two, three = ["sym", "x"], ["num", "2"], ["num", "3"]
    square = ["pow", ["add", x, ["num", "1"]], two]
    root = ["fn", "root", ["num", "8"], two]
    pairs = [
        (root, ["mul", two, ["fn", "root", two, two]]),
        (square, ["add", ["add", ["pow", x, two], ["mul", two, x]], ["num", "1"]]),
        (["fn", "sin", x], ["fn", "cos", x]),
        (["fn", "log", ["num", "8"], two], three),
        (["pow", ["const", "e"], ["mul", ["const", "i"], ["const", "pi"]]], ["neg", ["num", "1"]]),
        (["over", "integral", x, x, ["num", "0"], ["num", "1"]], ["num", "0.5"]),
        (["over", "sum", x, x, ["num", "1"], three], ["num", "6"]),
        (["fn", "factorial", ["num", "5"]], ["num", "120"]),
        (["fn", "binomial", ["num", "5"], two], ["num", "10"]),
        (["list", two, three], ["list", three, two]),
        (["rel", ["<"], [x, three]], ["tuple", "(", ")", ["neg", ["const", "oo"]], three]),
    ]
    for wanted, given in pairs:
        equal(wanted, given)
