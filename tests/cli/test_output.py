"""Tables and documents."""

import json

import pytest

from cli.output import emit, fields, seconds, table


def test_a_table_aligns_text_left_and_numbers_right() -> None:
    lines = table(["node", "units"], [["a", 5], ["longer", 12345]]).split("\n")
    assert lines == ["node    units", "------  -----", "a           5", "longer  12345"]


def test_an_empty_table_says_so() -> None:
    assert table(["a"], [], empty="no nodes") == "no nodes"


def test_fields_align() -> None:
    assert fields({"a": 1, "long": "x"}) == "a     1\nlong  x"


def test_json_keeps_integers_exact_and_bytes_readable(capsys: pytest.CaptureFixture[str]) -> None:
    emit({"base_units": 2**200 + 1, "hash": b"\x01\xff"}, True, lambda: "not this")
    assert json.loads(capsys.readouterr().out) == {"base_units": 2**200 + 1, "hash": "01ff"}


@pytest.mark.parametrize(("value", "text"), [(45, "45 s"), (600, "10 min"), (9000, "2.5 h"), (14 * 86400, "14 d")])
def test_durations(value: int, text: str) -> None:
    assert seconds(value) == text
