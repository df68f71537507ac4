"""An outer time-out always outlasts what it waits for."""

from dataclasses import astuple, fields
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainer.sites.timeouts import Timeouts

SECONDS = st.floats(1e-3, 1e6)


@given(window=SECONDS, training=SECONDS)
def test_they_nest(window: float, training: float) -> None:
    made = Timeouts.of(window, training)
    assert all(inner < outer for inner, outer in pairwise(astuple(made)))
    assert made.collect >= training + made.join
    assert made.step >= made.collect + made.window
    assert made.transfer >= 3 * made.request


def test_the_table_names_each() -> None:
    made = Timeouts.of(600, 1800)
    lines = made.table().splitlines()
    assert [line.split()[0] for line in lines] == [one.name for one in fields(made)]
    assert lines[0].startswith("request          75.0 s")
    with pytest.raises(ValueError, match="longer than nothing"):
        Timeouts.of(0, 1)
