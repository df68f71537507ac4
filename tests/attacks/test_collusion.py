from attacks.collusion import OneLie
from protocol.verdict import Code
from validator.judge_queue import LaneVerdict

HONEST = LaneVerdict((Code.REJECT_SAMPLING, Code.ACCEPT), b"\1" * 32)


def test_it_lies_once_where_it_has_the_majority_and_says_the_same_for_every_seat() -> None:
    lies = OneLie()
    assert lies.bend("lane-1-0-0", HONEST, captured=False) == HONEST
    lie = lies.bend("lane-1-1-0", HONEST, captured=True)
    assert lie.codes == (Code.REJECT_SAMPLING, Code.REJECT_WEIGHTS)
    assert lies.bend("lane-1-1-0", HONEST, captured=True) is lie
    assert lies.bend("lane-1-2-0", HONEST, captured=True) == HONEST, "only one lie"
