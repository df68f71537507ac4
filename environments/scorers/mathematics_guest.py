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

# Decimal digits that are computed, and that have to agree: first a few, which tell most wrong values, then many, which
# tell a value from one that lacks a tiny summand.
FEW, MANY = (60, 45), (1000, 900)
_CONSTANTS = {"pi": sympy.pi, "e": sympy.E, "i": I, "oo": oo, "empty": sympy.EmptySet}
_FLIPPED = {"<": ">", ">": "<", "<=": ">=", ">=": "<=", "=": "=", "!=": "!=", "in": "in"}
_SIMPLE = {
    "abs": sympy.Abs, "factorial": sympy.factorial, "binomial": sympy.binomial, "sqrt": sympy.sqrt, "exp": sympy.exp,
    "ln": sympy.log, "arcsin": sympy.asin, "arccos": sympy.acos, "arctan": sympy.atan, "max": sympy.Max,
    "min": sympy.Min, "gcd": sympy.gcd, "lcm": sympy.lcm, "floor": sympy.floor, "ceil": sympy.ceiling,
    "root": sympy.root,
    **{name: getattr(sympy, name) for name in ("sin", "cos", "tan", "cot", "sec", "csc", "sinh", "cosh", "tanh")},
}  # fmt: skip


class Undecided(Exception):
    """Two values cannot be compared."""


class _Comparison:
    """With one reading of a logarithm without a base."""

    def __init__(self, base: Any, seed: str) -> None:
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
        if "list" in kinds:
            return kinds == {"list"} and self._same_list(wanted[1:], given[1:])
        if "tuple" in kinds:
            brackets = [[{r"\langle": "(", r"\rangle": ")"}.get(side, side) for side in tree[1:3]]
                        for tree in (wanted, given)]  # fmt: skip
            return kinds == {"tuple"} and brackets[0] == brackets[1] and self._all(wanted[3:], given[3:])
        if "matrix" in kinds:
            is_both = kinds == {"matrix"} and len(wanted[1]) == len(given[1])
            return is_both and all(self._all(a, b) for a, b in zip(wanted[1], given[1], strict=True))
        if "ratio" in kinds:
            return kinds == {"ratio"} and self._all(wanted[1:], given[1:])
        return bool(wanted == given) if "text" in kinds else self._same_value(wanted, given)

    def _same_quantity(self, wanted: Any, given: Any) -> bool:
        """Units have to agree where both have one; of several none may be missing."""
        left, right = ((tree[1:] if tree[0] == "quantity" else [[tree, ""]]) for tree in (wanted, given))
        return len(left) == len(right) and all(
            (one == other or (len(left) == 1 and not (one and other))) and self.same(a, b)
            for (a, one), (b, other) in zip(left, right, strict=True)
        )

    def _same_percent(self, wanted: Any, given: Any) -> bool:
        if wanted[0] == given[0]:
            return self.same(wanted[1], given[1])
        if wanted[0] == "percent":  # asked for percent, an answer may leave the sign out
            return self.same(wanted[1], given) or self.same(["div", wanted[1], ["num", "100"]], given)
        return self.same(wanted, ["div", given[1], ["num", "100"]])

    def _same_list(self, wanted: Any, given: Any) -> bool:
        """In any order."""
        left = list(given)
        for item in wanted:
            found = next((place for place, other in enumerate(left) if self.same(item, other)), None)
            if found is None:
                return False
            del left[found]
        return not left

    def _all(self, wanted: Any, given: Any) -> bool:
        return len(wanted) == len(given) and all(self.same(a, b) for a, b in zip(wanted, given, strict=True))

    # ---- Relations

    def _same_relation(self, wanted: Any, given: Any) -> bool:
        left, right = self._side(wanted), self._side(given)
        if left is None or right is None:
            return False
        if "equation" in (left[0], right[0]):
            return self._same_equation(left, right)
        if "order" in (left[0], right[0]):
            return self._same_order(left, right)
        return (left[1] is None or right[1] is None or left[1] == right[1]) and self.same(left[2], right[2])

    def _side(self, tree: Any) -> Any:
        """Return ("value", name or None, tree), ("equation", left, right) or ("order", operators, terms); None for a
        chain that contradicts itself."""
        if tree[0] != "rel":
            return "value", None, tree
        operators, terms = tree[1], tree[2]
        if operators == ["in"] and _is_name(terms[0]):
            return "value", terms[0], terms[1]
        if any(operator != "=" for operator in operators):
            return "order", operators, terms
        name, rest = (terms[0], terms[1:]) if _is_name(terms[0]) else (None, terms)
        if name is None and len(terms) == 2 and any(map(_letters, terms)):
            return "equation", terms[0], terms[1]
        return ("value", name, rest[-1]) if all(self.same(a, b) for a, b in pairwise(rest)) else None

    def _same_equation(self, one: Any, other: Any) -> bool:
        """Whether the differences of both sides are proportional."""
        if "order" in (one[0], other[0]) or one[1] is None or other[1] is None:
            return False
        first, second = (["add", left, ["neg", right]] for _, left, right in (one, other))
        if _letters(first) != _letters(second):
            return False
        values = self._at_points(self.value(first), self.value(second))
        ratios = [a / b for a, b in values if b != 0 and a != 0]
        return len(ratios) >= 2 and all(_near(ratio, ratios[0]) for ratio in ratios)

    def _same_order(self, one: Any, other: Any) -> bool:
        if one[0] != "order" or other[0] != "order":
            first, second = ((_interval(side) if side[0] == "order" else side[2]) for side in (one, other))
            return first is not None and second is not None and self.same(first, second)
        flipped = [_FLIPPED[operator] for operator in other[1][::-1]], other[2][::-1]
        return any(one[1] == operators and self._all(one[2], terms) for operators, terms in (other[1:], flipped))

    # ---- Values

    def _same_value(self, wanted: Any, given: Any) -> bool:
        left, right = self.value(wanted), self.value(given)
        numbers = isinstance(left, sympy.Expr) and isinstance(right, sympy.Expr)
        if not numbers or left.is_infinite or right.is_infinite:
            return bool(left == right)
        if left.free_symbols | right.free_symbols:
            pairs = self._at_points(left, right)
            return len(pairs) >= 2 and all(_near(a, b) for a, b in pairs) and _near_in_many(*self._points[-1])
        if left.is_Rational and right.is_Rational:
            is_same = left == right
        else:
            pair = left, right
            left, right = _number(left), _number(right)
            is_same = _near(left, right) and _near_in_many(*pair)
        return bool(is_same) or _rounded(given, right, left) or _rounded(wanted, left, right)

    def _at_points(self, one: Any, other: Any) -> list[tuple[Any, Any]]:
        """Return pairs of values where the letters' values follow from a hash of both trees: nobody can choose them.
        They are small and large, of each sign and of mixed ones, and whole: |x|, max(x, 10) or ⌊x⌋ differ somewhere
        from what they are elsewhere. What is whole is last, where factorials are quick in many digits."""
        letters, pairs = sorted(one.free_symbols | other.free_symbols, key=str), []
        self._points = list[Any]()
        for point, (size, sign) in enumerate(((1, 1), (1, -1), (1000, 1), (1000, -1), (1, 0), (0, 1))):
            values = {}
            for letter in letters:
                drawn = int.from_bytes(hashlib.sha256(f"{self._seed} {point} {letter}".encode()).digest()[:4], "big")
                value = Rational(size * (drawn % 9973 + 101), 2003 + drawn % 89) if size else Integer(3 + drawn % 37)
                values[letter] = value * (sign or (-1) ** (drawn >> 20))
            try:
                pair = one.subs(values), other.subs(values)
                pairs.append((_number(pair[0]), _number(pair[1])))
                self._points.append(pair)
            except Undecided:
                continue
        return pairs

    def value(self, tree: Any) -> Any:
        kind = tree[0]
        if kind == "num":
            return Rational(tree[1])
        if kind == "sym":
            return sympy.Symbol(tree[1])
        if kind == "const":
            return _CONSTANTS[tree[1]]
        if kind == "fn":
            return self._function(tree[1], [self.value(argument) for argument in tree[2:]])
        if kind not in ("neg", "add", "mul", "div", "pow", "percent"):
            raise Undecided
        first, *more = map(self.value, tree[1:])
        if kind == "neg":
            return -first
        if kind == "percent":
            return first / 100
        if kind == "add":
            return first + more[0]
        if kind == "mul":
            return first * more[0]
        return first / more[0] if kind == "div" else first ** more[0]

    def _function(self, name: Any, arguments: Any) -> Any:
        if name == "log":
            return sympy.log(arguments[0]) / sympy.log(arguments[1] if len(arguments) > 1 else self._base)
        if name == "lg":
            return sympy.log(arguments[0]) / sympy.log(10)
        if name.startswith("named "):
            return sympy.Function(name[6:])(*arguments)
        # of letters, sympy's gcd is that of polynomials: gcd(n, 6) would be 1
        if name not in _SIMPLE or (name in ("gcd", "lcm") and not all(value.is_Integer for value in arguments)):
            raise Undecided
        return _SIMPLE[name](*arguments)


def _alone(tree: Any) -> Any:
    return _alone(tree[1]) if tree[0] == "list" and len(tree) == 2 else tree


def _is_name(tree: Any) -> bool:
    return tree[0] in ("sym", "text") or (tree[0] == "fn" and tree[1].startswith("named "))


def _letters(tree: Any) -> set[str]:
    """Return the names of the letters in a tree."""
    if not isinstance(tree, list):
        return set()
    return {tree[1]} if tree[:1] == ["sym"] else set().union(*map(_letters, tree))


def _interval(side: Any) -> Any:
    """Return x < 3 or 1 < x <= 3 as an interval; None for anything else."""
    _, operators, terms = side
    if operators[0] in (">", ">="):
        operators, terms = [_FLIPPED[operator] for operator in operators[::-1]], terms[::-1]
    places = [place for place, term in enumerate(terms) if _letters(term)]
    if len(places) != 1 or terms[places[0]][0] != "sym" or not set(operators) <= {"<", "<="}:
        return None
    at = places[0]
    if len(terms) > 3 or (len(terms) == 3 and at != 1):
        return None
    low, opening = (terms[at - 1], operators[at - 1]) if at else (["neg", ["const", "oo"]], "<")
    high, closing = (terms[at + 1], operators[at]) if at + 1 < len(terms) else (["const", "oo"], "<")
    return ["tuple", "[" if opening == "<=" else "(", "]" if closing == "<=" else ")", low, high]


def _number(value: Any, digits: int = FEW[0]) -> Any:
    """Return a value to so many digits. Raise Undecided for what has none."""
    number = sympy.N(value, digits)
    if not number.is_number or number.has(sympy.nan, sympy.zoo, oo):
        raise Undecided
    real, imaginary = number.as_real_imag()
    if not (real.is_Number and imaginary.is_Number):
        raise Undecided
    return real + I * imaginary


def _near(left: Any, right: Any, close: int = FEW[1]) -> bool:
    """Whether two numbers agree, relative to the larger one."""
    size = max(abs(left), abs(right))
    if size == 0:
        return True
    if min(abs(left), abs(right)) == 0:  # a hidden zero is computed as something that has no digits
        return bool(size < Rational(1, 10**80)) and any(
            getattr(part, "_prec", 99) == 1 for part in (left + right).as_real_imag()
        )
    return bool(abs(left - right) * 10**close <= size)


def _near_in_many(left: Any, right: Any) -> bool:
    digits, close = MANY
    return bool(left == right) or _near(_number(left, digits), _number(right, digits), close)


def _rounded(tree: Any, value: Any, exact: Any) -> bool:
    """Whether a decimal rounds an exact value that no decimal is: to six places at least, with three digits of it."""
    tree = tree[1] if tree[0] == "neg" else tree
    digits = tree[1] if tree[0] == "num" else ""
    whole, point, decimals = digits.partition(".")
    if not point or len(decimals) < 6 or len((whole + decimals).lstrip("0")) < 3:
        return False
    if exact.is_Rational and pow(10, exact.q.bit_length(), exact.q) == 0:  # it is a decimal itself
        return False
    return bool(2 * abs(value - exact) * 10 ** len(decimals) <= 1)


def equal(wanted: Any, given: Any) -> bool:
    """Return whether the answer's tree equals the reference's."""
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
        (["fn", "factorial", ["num", "5"]], ["num", "120"]),
        (["fn", "binomial", ["num", "5"], two], ["num", "10"]),
        (["list", two, three], ["list", three, two]),
        (["rel", ["<"], [x, three]], ["tuple", "(", ")", ["neg", ["const", "oo"]], three]),
    ]
    for wanted, given in pairs:
        equal(wanted, given)
