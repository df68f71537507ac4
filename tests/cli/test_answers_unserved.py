"""`validator status` says which pools the process cannot judge, and what to do about each."""

from dataclasses import replace

from cli.answers import seats_answers
from tests.cli.test_answers import CHAIN_DOWN, PROCESS, PROCESS_DOWN, UP, flat, seats_look


def test_a_validator_is_told_which_pools_its_machine_cannot_judge() -> None:
    look = seats_look(process={**PROCESS, "unserved": {"1": "nobody answers"}})
    assert "judge pool 1, which this machine cannot (nobody answers)" in flat(seats_answers(look).todo)
    gone = replace(look, parts=(*UP[:2], PROCESS_DOWN))
    assert "judge pool 1" not in flat(seats_answers(gone).todo)
    blind = replace(look, parts=(CHAIN_DOWN, *UP[1:]), chain=None)
    assert "judge pool 1, which this machine cannot" in flat(seats_answers(blind).todo)


def test_who_has_nothing_bonded_yet_is_told_that_the_process_tries_again() -> None:
    look = seats_look(process={**PROCESS, "unserved": {"7": "no weights"}})
    todo = flat(seats_answers(look).todo)
    assert "bond once the process can judge pool 7, which it tries every half minute at least (no weights)" in todo
