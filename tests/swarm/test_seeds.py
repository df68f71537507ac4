"""A problem follows from the swarm's document, the member, its round and the slot."""

from swarm.envelope import round_problem

DOCUMENT, OTHER, MEMBER = bytes(31) + b"\x01", bytes(31) + b"\x02", "0x" + "11" * 20


def test_every_part_of_it_makes_another_problem() -> None:
    one = round_problem(DOCUMENT, MEMBER, 3, 1)
    others = [
        round_problem(OTHER, MEMBER, 3, 1),
        round_problem(DOCUMENT, "0x" + "12" * 20, 3, 1),
        round_problem(DOCUMENT, MEMBER, 4, 1),
        round_problem(DOCUMENT, MEMBER, 3, 2),
    ]
    assert len({one, *others}) == 5
    assert one == round_problem(DOCUMENT, MEMBER, 3, 1)
