"""Amounts: exact in both directions, and nothing but plain decimals is taken."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.amounts import parse_tokens, show_tokens
from protocol.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "base_units"),
    [
        ("12", 12_000_000_000),
        ("12.5", 12_500_000_000),
        ("0.000000001", 1),
        (" 3.10 ", 3_100_000_000),
        ("0.1000000000000", 100_000_000),
        ("123456789012345678901.000000009", 123456789012345678901000000009),
    ],
)
def test_decimal_tokens_become_base_units(text: str, base_units: int) -> None:
    assert parse_tokens(text) == base_units


@pytest.mark.parametrize(
    "text", ["", "-1", "+1", "1e3", "0x10", "1,5", ".5", "5.", "1_000", "NaN", "٣", "0.0000000001"]
)
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(ConfigError):
        parse_tokens(text)


@given(st.integers(0, 2**256 - 1))
def test_what_is_shown_can_be_typed(base_units: int) -> None:
    if base_units < 10**39:
        assert parse_tokens(show_tokens(base_units)) == base_units
    whole, _, fraction = show_tokens(base_units).partition(".")
    assert int(whole) * 10**9 + int(fraction.ljust(9, "0")) == base_units


def test_negative_amounts_are_shown_with_their_sign() -> None:
    assert show_tokens(-1_500_000_000) == "-1.5"
