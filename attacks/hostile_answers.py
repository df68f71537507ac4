"""Answers to a question whose answer is 12 that try to hang, harm or deceive who judges them."""

from collections.abc import Callable

ANSWERS: list[tuple[str, Callable[[], str]]] = [
    ("ten megabytes", lambda: r"\boxed{" + "1" * 10_000_000 + "}"),
    ("ten megabytes of boxes", lambda: r"\boxed{" * 1_400_000),
    ("a power tower", lambda: "9^9^9^9^9^9"),
    ("a boxed power tower", lambda: r"\boxed{9^{9^{9^{9^9}}}}"),
    ("a huge exponent", lambda: r"\boxed{1e999999999}"),
    ("a huge factorial", lambda: r"\boxed{(10^9)!}"),
    ("factorials of factorials", lambda: r"\boxed{9!!!!!!!!!!}"),
    ("a huge binomial", lambda: r"\boxed{\binom{10^9}{10^8}}"),
    ("a long sum", lambda: r"\boxed{\sum_{k=1}^{10^9} \frac{1}{k}}"),
    ("a long product", lambda: r"\boxed{\prod_{k=1}^{10^9} k}"),
    ("a high derivative", lambda: r"\boxed{\frac{d^{100}}{dx^{100}} e^{x^2}}"),
    ("a high power of a sum", lambda: r"\boxed{(x+y+z)^{99999}}"),
    ("deep parentheses", lambda: "(" * 50_000 + "1" + ")" * 50_000),
    ("deep braces", lambda: r"\boxed{" + "{" * 300 + "2" + "}" * 300 + "}"),
    ("deep fractions", lambda: r"\boxed{" + r"\frac{1}{" * 20 + "2" + "}" * 20 + "}"),
    ("deep roots", lambda: r"\boxed{" + r"\sqrt{" * 22 + "2" + "}" * 22 + "}"),
    ("many digits", lambda: r"\boxed{" + "7" * 900 + "}"),
    ("many terms", lambda: r"\boxed{" + "+".join(f"x_{{{k}}}" for k in range(100)) + "}"),
    ("a set of many", lambda: r"\boxed{\{" + ",".join(map(str, range(220))) + r"\}}"),
    ("Python", lambda: r"\boxed{__import__('os').write(1, b'1.0') or exit()}"),
    ("Python as plain text", lambda: "__import__('os')._exit(0) (1).__class__ 1.0"),
    ("macros", lambda: r"\def\a{\a\a}\a \boxed{\a}"),
    ("no text at all", lambda: "\0\ud800\x1b[2J" * 100),
    ("infinity", lambda: r"\boxed{\infty}"),
    ("everything", lambda: r"\boxed{x=x}"),
    ("not a number", lambda: r"\boxed{nan}"),
    ("a range of everything", lambda: r"\boxed{(-\infty,\infty)}"),
]
"""(what it is, how to make it)."""
