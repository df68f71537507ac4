"""Answers that want to hang, break or fool a scorer, whatever the question."""

from collections.abc import Callable, Mapping

HOSTILE: Mapping[str, Callable[[], str]] = {
    "nothing": lambda: "",
    "spaces": lambda: " \n\t" * 20_000,
    "a zero byte": lambda: "\0",
    "half a character": lambda: "\ud800",
    "control characters": lambda: "\x1b[2J\r\b" * 1_000,
    "ten megabytes": lambda: "1" * 10_000_000,
    "sixty thousand digits": lambda: "9" * 60_000,
    "a huge exponent": lambda: "1e999999999",
    "a power tower": lambda: "9**9**9**9**9",
    "a huge repetition": lambda: "'a'*10**10",
    "not a number": lambda: "nan",
    "infinity": lambda: "inf",
    "deep brackets": lambda: "[" * 30_000 + "]" * 30_000,
    "deep parentheses": lambda: "(" * 30_000 + "1" + ")" * 30_000,
    "deep braces": lambda: '{"a":' * 10_000 + "1" + "}" * 10_000,
    "boxes": lambda: r"\boxed{" * 8_000,
    "fences": lambda: "```\n" * 16_000,
    "a slow pattern": lambda: "a" * 60_000 + "!",
    "many words": lambda: "a " * 30_000,
    "many lines": lambda: "\n" * 60_000,
    "Python": lambda: "__import__('os')._exit(0)",
    "a format": lambda: "{0.__class__.__mro__}%s%n",
    "a regular expression": lambda: "(.*)*",
    "a claim": lambda: '{"score": 1.0, "reward": 1.0, "output": 1.0}',
    "a true value": lambda: "True",
}
"""What it is → how to make it."""
