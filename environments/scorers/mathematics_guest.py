"""Compares an answer with a reference by math-verify: it runs inside the sandbox only, as `muster_mathematics`."""

import logging
import sys

from math_verify import parse, verify

logging.disable(logging.CRITICAL)
sys.setrecursionlimit(1000)
if hasattr(sys, "set_int_max_str_digits"):
    sys.set_int_max_str_digits(4300)


def score(reference: str, answer: str) -> float:
    """1.0 if they are equal, else 0.0."""
    gold, given = parse(reference, parsing_timeout=None), parse(answer, parsing_timeout=None)
    return float(bool(verify(gold, given, timeout_seconds=None)))


def warm() -> None:
    """The first answers of each kind build parsers and caches."""
    for reference, answer in WARM:
        score(reference, answer)


WARM = (
    (r"\boxed{\frac{1}{2}}", r"Therefore the answer is $0.5$."),
    (r"\boxed{12}", "The answer is 12."),
    (r"\boxed{x^2+2x+1}", r"\boxed{(x+1)^2}"),
    (r"\boxed{\{1,2,3\}}", r"\boxed{\{3,2,1\}}"),
    (r"\boxed{2\sqrt{2}}", r"$\sqrt{8}$"),
    (r"\boxed{10\%}", "0.1"),
    (r"\boxed{(1, 2)}", r"\boxed{(1,2)}"),
    (r"\boxed{[0, 1)}", r"\boxed{[0,1)}"),
    (r"\boxed{x < 3}", r"\boxed{x<3}"),
    (r"\boxed{\frac{\pi}{4}}", r"\boxed{\dfrac{\pi}{4}}"),
    (
        r"\boxed{\begin{pmatrix} 1 & 2 \\ 3 & 4 \end{pmatrix}}",
        r"\boxed{\begin{bmatrix} 1 & 2 \\ 3 & 4 \end{bmatrix}}",
    ),
    (r"\boxed{\sin^2(x)}", r"\boxed{1-\cos^2(x)}"),
    (r"\boxed{e^{i\pi}}", r"\boxed{-1}"),
    (r"\boxed{3+4i}", r"\boxed{3+4i}"),
    (r"\boxed{\int_0^1 x \, dx}", r"\boxed{\frac{1}{2}}"),
    (r"\boxed{\binom{5}{2}}", r"\boxed{10}"),
    (r"\boxed{\log_2 8}", r"\boxed{3}"),
    (r"\boxed{|x-1|}", r"\boxed{\left|1-x\right|}"),
    (r"\boxed{\sum_{k=1}^{3} k}", r"\boxed{6}"),
    (r"\boxed{5!}", r"\boxed{120}"),
    (r"\boxed{x=2}", r"\boxed{x = 2 \text{ cm}}"),
    (r"\boxed{7}", r"17 minutes, so \boxed{8}"),
)
