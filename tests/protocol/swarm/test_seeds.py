"""Problems follow from who a member is, how far it has come, and what the chain fixed after it joined."""

from protocol.swarm.seeds import NO_START, round_problem

DOCUMENT, MEMBER, START = bytes(31) + b"\x01", "0x" + "11" * 20, bytes(31) + b"\x02"


def test_every_part_of_it_makes_another_problem() -> None:
    one = round_problem(DOCUMENT, MEMBER, 3, 1, START)
    others = [
        round_problem(START, MEMBER, 3, 1, START),
        round_problem(DOCUMENT, "0x" + "12" * 20, 3, 1, START),
        round_problem(DOCUMENT, MEMBER, 4, 1, START),
        round_problem(DOCUMENT, MEMBER, 3, 2, START),
        round_problem(DOCUMENT, MEMBER, 3, 1, DOCUMENT),
        round_problem(DOCUMENT, MEMBER, 3, 1),
    ]
    assert len({one, *others}) == 7
    assert one == round_problem(DOCUMENT, MEMBER, 3, 1, START)
    assert round_problem(DOCUMENT, MEMBER, 3, 1) == round_problem(DOCUMENT, MEMBER, 3, 1, NO_START)


def test_a_key_says_nothing_of_its_problems_before_the_chain_does() -> None:
    """Of two keys and two starts, which key has the lower seed depends on the start: choosing a key chooses nothing."""
    keys = [f"0x{number:040x}" for number in range(1, 9)]
    best = {
        min(keys, key=lambda key: round_problem(DOCUMENT, key, 0, 0, number.to_bytes(32, "big")))
        for number in range(64)
    }
    assert len(best) == len(keys)
