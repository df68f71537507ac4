"""What counts as the same output and the same value."""

from typing import Any

import pytest

from environments.scorers.comparison import same_output, same_value


@pytest.mark.parametrize(
    ("given", "expected", "same"),
    [
        ("1 2\n3\n", "1 2 3", True),
        ("a  b", "a b", True),
        ("a", "A", False),
        ("1", "1.0", True),
        ("3.0", "3", True),
        ("3.0000001", "3", False),
        ("2432902008176640001.0", "2432902008176640000", False),
        ("2432902008176640000.0", "2432902008176640000", True),
        ("243290.2e13", "2432902008176640000", False),
        ("1.e999", "2.e999", False),
        ("0.3333333", "0.33333333", True),
        ("0.333", "0.334", False),
        ("1", "2", False),
        ("10", "10 10", False),
        ("nan", "nan.0", False),
        ("inf", "1.0", False),
        ("1e999", "1.5", False),
        ("٣", "3.0", False),
        ("1." + "0" * 400, "1.0", False),
        ("", "", True),
    ],
)
def test_outputs(given: str, expected: str, same: bool) -> None:
    assert same_output(given, expected) is same


@pytest.mark.parametrize(
    ("given", "expected", "same"),
    [
        ([1, [2.0000000001]], [1, [2.0]], True),
        ({"a": [1]}, {"a": [1]}, True),
        ({"a": 1}, {"b": 1}, False),
        (True, 1, False),
        (1, 1.0, True),
        (1.0, 1, True),
        (1.0000001, 1, False),
        (2432902008176640512.0, 2432902008176640000, False),
        (float("inf"), float("inf"), False),
        (True, 1.0, False),
        ("1", 1, False),
        ([1], [1, 1], False),
        (10**400, 1.0, False),
        (None, None, True),
        (None, False, False),
    ],
)
def test_values(given: Any, expected: Any, same: bool) -> None:
    assert same_value(given, expected) is same
