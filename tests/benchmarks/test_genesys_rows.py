"""Tasks out of packages: programs with their own outcome, complete without what stands elsewhere, and true."""

import ast
import json
from collections import Counter

from benchmarks.genesys_asserts import equations
from benchmarks.genesys_code import code_tasks
from benchmarks.genesys_examples import documented
from benchmarks.genesys_rows import tasks
from benchmarks.genesys_source import PackageFile
from benchmarks.genesys_truth import outcomes
from environments.genesys import read_row
from environments.scorers import code

TESTS = """
import math as m
from os.path import join

BASE = 3

def helper(x):
    return x

def test_all():
    a = 4
    b = a + BASE
    assert m.gcd(b, 14) == 7
    assert helper(a) == 4
    assert [a for a in (1, 2)] == [1, 2]
    for c in (1, 2):
        assert c == 1
    assert b == a
    assert join("x", "y") == 'x/y'
    assert (a is 4) is True
"""
DOCUMENTED = '''
from .near import LIMIT
import json as written

SIZES = [1, 2]

def largest(values):
    """The largest of some numbers: of none 0.

    >>> largest([3, 9, 2])
    9
    >>> largest([])
    0
    >>> largest(SIZES)
    2
    >>> values = [4]
    >>> values
    [4]
    >>> written.dumps(values)
    '[4]'
    """
    return max(values, default=least())

def least():
    return 0
'''


def file_of(text: str) -> PackageFile:
    return PackageFile("package/inner/this.py", ast.parse(text))


def test_equations_come_with_what_they_need_and_no_others() -> None:
    found = {one.literal: one.program for one in equations(file_of(TESTS))}
    assert found == {
        "7": "import math as m\nBASE = 3\na = 4\nb = a + BASE\nm.gcd(b, 14)\n",
        "[1, 2]": "[a for a in (1, 2)]\n",
        "'x/y'": "from os.path import join\njoin('x', 'y')\n",
        "True": "a = 4\na is 4\n",
    }


def test_examples_come_with_the_imports_that_they_take_for_granted() -> None:
    file = file_of(DOCUMENTED)
    assert file.line_for("LIMIT") == "from package.inner.near import LIMIT"
    largest = "from package.inner.this import largest\n"
    found = [(one.program, one.printed) for one in documented(file)]
    assert found[0] == (largest + "largest([3, 9, 2])\n", "9")
    assert found[2][0].startswith("from package.inner.this import SIZES\n" + largest)
    assert [printed for _, printed in found] == ["9", "0", "2", "'[4]'"]
    assert found[3][0].startswith(largest.replace("largest\n", "SIZES\n"))


def test_a_function_that_stands_alone_is_asked_for_with_its_examples() -> None:
    (task,) = code_tasks([file_of(DOCUMENTED)])
    assert task.tests == (([[3, 9, 2]], 9), ([[]], 0))
    assert "The largest of some numbers: of none 0.\nFor example, `largest([3, 9, 2])` gives `9`." in task.prompt
    assert code.score(task.reference, task.verification) == 1.0
    assert code.score("```python\ndef largest(values):\n    return 9\n```", task.verification) == 0.0


def test_programs_are_believed_only_where_two_runs_agree() -> None:
    programs = [
        {"kind": "printed", "before": "x = [3]\n", "last": "x"},
        {"kind": "printed", "before": "", "last": "{'a', 'b', 'c', 'd', 'e', 'f', 'g', 'h'}"},
        {"kind": "value", "before": "", "last": "None"},
        {"kind": "value", "before": "", "last": "1 / 0"},
        {"kind": "value", "before": "while True:\n    pass\n", "last": "1"},
        {"kind": "value", "before": "from sympy.abc import x\nlater = 1\n", "last": "x + x"},
        {"kind": "value", "before": "", "last": "later"},
        {"kind": "formula", "before": "from sympy import integrate\nfrom sympy.abc import x\n",
         "last": "integrate(2 * x, (x, 0, 3))", "right": "9"},
        {"kind": "formula", "before": "from sympy import integrate\nfrom sympy.abc import x\n",
         "last": "integrate(2 * x, (x, 0, 3))", "right": "8"},
    ]  # fmt: skip
    asked = r"\int\limits_{0}^{3} 2 x\, dx"
    assert outcomes(programs, print) == ["[3]", None, "None", None, None, "2*x", None, [asked, "9"], None]


def test_rows_are_of_the_schema_and_none_is_wrong() -> None:
    rows, (count, gym) = tasks(print, ("toolz",), gym=1)
    assert count.true + gym.true == len(rows) > 300
    types = Counter(row["task_type"] for row in rows)
    assert min(types[name] for name in ("code_output_prediction", "verifiable_code", "reasoning_gym")) > 5
    for row in rows:
        read_row(row, "here")
        if row["task_type"] == "code_output_prediction":
            assert json.loads(row["gold_standard_solution"])["output"] == row["verification_info"]["ground_truth"]
