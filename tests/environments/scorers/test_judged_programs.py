"""Programs as people write them for judges, with the verdicts that judges give: more than 500, made from templates."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from typing import Any

import pytest

from environments.scorers.code import score

READ = {
    "input": "a, b = map(int, input().split())",
    "readline": "import sys\na, b = map(int, sys.stdin.readline().split())",
    "readline as input": "import sys\ninput = sys.stdin.readline\na, b = map(int, input().split())",
    "read": "import sys\na, b = map(int, sys.stdin.read().split())",
    "buffer": "import sys\na, b = map(int, sys.stdin.buffer.read().split())",
    "open(0)": "a, b = map(int, open(0).read().split())",
    "os.read": "import os\na, b = map(int, os.read(0, 1 << 16).split())",
    "for line": "import sys\nfor line in sys.stdin:\n    a, b = map(int, line.split())",
    "iter": "import sys\ndata = iter(sys.stdin.read().split())\na, b = int(next(data)), int(next(data))",
}
PRINT = {
    "print": "print({})",
    "flush": "print({}, flush=True)",
    "write": "import sys\nsys.stdout.write(str({}) + '\\n')",
    "no newline": "import sys\nsys.stdout.write(str({}))",
    "buffer": "import sys\nsys.stdout.buffer.write(str({}).encode())",
    "join": "print('\\n'.join([str({})]))",
    "format": "print('%d' % ({}))",
    "os.write": "import os\nos.write(1, str({}).encode())",
    "print to stdout": "import sys\nprint({}, file=sys.stdout)",
}
SHAPES = {
    "plain": "{read}\n{show}\n",
    "main": "def main():\n{read4}\n{show4}\n\nif __name__ == '__main__':\n    main()\n",
    "exit": "{read}\n{show}\nexit()\n",
    "quit": "{read}\n{show}\nquit(0)\n",
    "sys.exit": "import sys\n{read}\n{show}\nsys.exit(0)\n",
    "thread": "import sys, threading\nthreading.stack_size(1 << 27)\nsys.setrecursionlimit(1 << 20)\n"
    "def main():\n{read4}\n{show4}\nt = threading.Thread(target=main)\nt.start()\nt.join()\n",
    "stderr": "import sys\n{read}\nprint('debug', file=sys.stderr)\n{show}\n",
    "fast io": "import io, os, sys\nsys.stdin = io.StringIO(os.read(0, 1 << 20).decode())\n{read}\n{show}\n",
}
BESIDE_STREAMS = {("fast io", "buffer"), ("fast io", "open(0)"), ("fast io", "os.read")}
"""Shapes that leave nothing to read for these ways of reading."""
VERDICTS = (("a + b", 1.0), ("a - b", 0.0), ("a + b + 0.5 - 0.5", 1.0), ("'sum'", 0.0))
TESTS = [
    {"type": "stdin_stdout", "input": f"{a} {b}\n", "output": f"{a + b}\n"} for a, b in ((1, 2), (20, 22), (10**12, 1))
]


def _programs() -> Iterator[tuple[str, str, float]]:
    """Yield every way of reading with every way of printing in every shape: name, program, verdict in turn."""
    for number, (shape, how, name) in enumerate(product(SHAPES, READ, PRINT)):
        value, verdict = VERDICTS[(number + number // 9) % len(VERDICTS)]
        value = "0" if (name, value) == ("format", "'sum'") else value
        parts = {"read": READ[how], "show": PRINT[name].format(value)}
        parts |= {f"{part}4": "    " + text.replace("\n", "\n    ") for part, text in parts.items()}
        if (shape, how) not in BESIDE_STREAMS:
            yield f"{shape}, {how}, {name}, {value}", SHAPES[shape].format(**parts), verdict


PROGRAMS = list(_programs())
assert len(PROGRAMS) > 500


@pytest.mark.parametrize("part", range(8))
def test_programs_of_every_shape_have_their_verdict(part: int) -> None:
    def is_wrong(program: tuple[str, str, float]) -> bool:
        _, source, verdict = program
        return score(f"Solution:\n\n```python\n{source}```\n", {"test_cases": TESTS}) != verdict

    with ThreadPoolExecutor(2) as threads:
        programs = PROGRAMS[part::8]
        wrong = threads.map(is_wrong, programs)
        assert [name for (name, _, _), is_one in zip(programs, wrong, strict=True) if is_one] == []


CALLS: list[tuple[str, str, Any, Any, float]] = [
    (
        "class Solution:\n    def f(self, a: List[int], b: Optional[int]) -> int:\n        return a[0] + b",
        "f", "[2, 3]\n4", "6", 1,
    ),
    ("class Solution:\n    def f(self, s: str) -> str:\n        return s[::-1]", "f", '"abc"', '"cba"', 1),
    ("def f(s):\n    return s.upper()", "f", "abc", "ABC", 1),
    ("def f(n):\n    return [n] * n", "f", "3", "[3, 3, 3]", 1),
    ("def f(a):\n    return sorted(a)", "f", [[3, 1, 2]], [1, 2, 3], 1),
    ("def f(a):\n    return sorted(a)", "f", "[3, 1, 2]", "[1, 2, 3]", 1),
    ("def f(*a):\n    return sum(a)", "f", [1, 2, 3], 6, 1),
    ("def f(a):\n    return (a, None, True)", "f", [1], "[1, None, True]", 1),
    ("def f(a):\n    return (a, None, True)", "f", [1], "(1, None, True)", 1),
    ("def f(a):\n    return (a, None, False)", "f", [1], "(1, None, True)", 0),
    ("def f(a, b):\n    return a - b", "f", {"b": 1, "a": 3}, 2, 1),
    ("def f(d):\n    return d['a']", "f", {"a": 3}, 3, 1),
    ("class Kata:\n    def f(self, a):\n        return a", "f", [7], 7, 1),
    ("class Node:\n    pass\nclass Box:\n    def f(self, a):\n        return a", "f", [7], [7], 1),
    ("def g(a):\n    return a", "f", [7], 7, 0),
    ("def f(a):\n    heapify(a)\n    return Counter(a).most_common(1)[0][0] + gcd(4, 6)", "f", [[1, 1, 2]], 3, 1),
    ("def f(a):\n    print('debug')\n    return a", "f", [7], 7, 1),
    ("def f(x):\n    return x / 3", "f", [1.0], 0.3333333333, 1),
    ("def f(x):\n    return x == 1", "f", [1], 1, 0),
    ("f = lambda x: x + 1", "f", [1], 2, 1),
    ("@lru_cache(None)\ndef f(n):\n    return n if n < 2 else f(n - 1) + f(n - 2)", "f", [30], 832040, 1),
]  # fmt: skip


@pytest.mark.parametrize(("source", "name", "given", "expected", "verdict"), CALLS)
def test_functions_have_their_verdict(source: str, name: str, given: Any, expected: Any, verdict: float) -> None:
    test = {"type": "function_call", "fn_name": name, "input": given, "output": expected}
    assert score(f"```python\n{source}\n```", {"test_cases": [test]}) == verdict


ENDINGS = [
    ("print(6)\nraise SystemExit", 1.0),
    ("print(6)\nraise SystemExit(0)", 1.0),
    ("print(6)\nexit(1)", 0.0),
    ("print(6)\nraise ValueError", 0.0),
    ("print(6)\n1 / 0", 0.0),
    ("import sys\nsys.stdout.write('6')\nsys.stdout.close()", 1.0),
    ("import atexit\natexit.register(print, 6)", 1.0),
    ("print(6, end='')", 1.0),
    ("print('6 ')", 1.0),
    ("print(6.0)", 1.0),
    ("print(6.0000001)", 0.0),
    ("print('6\\n\\n')", 1.0),
    ("print(6, 6)", 0.0),
    ("print('Answer: 6')", 0.0),
    ("while True: pass", 0.0),
    ("input(); input(); input()", 0.0),
    (
        "import sys\nsys.setrecursionlimit(10**6)\ndef f(n): return 0 if n == 0 else 1 + f(n - 1)\nf(20000)\nprint(6)",
        1.0,
    ),
]


@pytest.mark.parametrize(("source", "verdict"), ENDINGS)
def test_how_a_program_ends_counts_as_at_a_judge(source: str, verdict: float) -> None:
    test = {"type": "stdin_stdout", "input": "1\n2\n", "output": "6\n"}
    assert score(f"~~~py\n{source}\n~~~", {"test_cases": [test]}) == verdict


def test_much_input_and_much_output_cost_nothing_that_is_counted() -> None:
    source = "import sys\nfor _ in range(int(input())):\n    print(int(input()) + 1, flush=True)"
    test = {"type": "stdin_stdout", "input": "50000\n" + "1\n" * 50_000, "output": "2\n" * 50_000}
    assert score(f"```python\n{source}\n```", {"test_cases": [test]}) == 1.0
