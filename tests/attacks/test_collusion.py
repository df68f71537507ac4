from attacks.validator import OneLie, OneSilence
from protocol.verdict import Code
from validator.judging.queue import LaneVerdict

HONEST = LaneVerdict((Code.REJECT_SAMPLING, Code.ACCEPT), b"\1" * 32)


def test_it_lies_once_where_it_has_the_majority_and_says_the_same_for_every_seat() -> None:
    lies = OneLie()
    assert lies.bend("lane-1-0-0", HONEST, captured=False) == HONEST
    lie = lies.bend("lane-1-1-0", HONEST, captured=True)
    assert lie.codes == (Code.REJECT_SAMPLING, Code.REJECT_WEIGHTS)
    assert lies.bend("lane-1-1-0", HONEST, captured=True) is lie
    assert lies.bend("lane-1-2-0", HONEST, captured=True) == HONEST, "only one lie"


def test_it_keeps_silent_in_one_lane_that_it_had_not_voted_in() -> None:
    silence = OneSilence()
    assert not silence.keeps("lane-1-0-0", may=False)
    assert not silence.keeps("lane-1-0-0", may=True), "its vote there may be on its way"
    assert silence.keeps("lane-1-1-0", may=True)
    assert silence.keeps("lane-1-1-0", may=True), "for all seats, turn after turn"
    assert not silence.keeps("lane-1-2-0", may=True), "only once"
    assert silence.keeps("lane-1-1-0", may=False)
