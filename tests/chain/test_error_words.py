"""Every refusal of the contracts has words, or is named as one that people do not meet."""

from string import Formatter

import pytest

from chain import abi
from chain.errors import _WORDS, UNSPOKEN

ERRORS = {error.where: error for error in abi.all_errors().values()}


def test_every_error_has_words_or_is_known_to_need_none() -> None:
    assert not _WORDS.keys() & UNSPOKEN
    assert set(ERRORS) == _WORDS.keys() | UNSPOKEN


@pytest.mark.parametrize("name", sorted(_WORDS))
def test_words_name_only_what_the_error_says(name: str) -> None:
    of_one_name = [error for error in abi.all_errors().values() if error.where == name]
    named = {field for text in _WORDS[name] for _, field, _, _ in Formatter().parse(text) if field is not None}
    assert any(named <= {component["name"] for component in error.components} for error in of_one_name), (
        f"{named} of {of_one_name}"
    )
