"""Which problems a member works on and with which noise: both follow from who it is and how far it has come.

Nobody makes up the problems that its groups are about: a receiver derives them itself, so a text for another problem is
a text for this one, and scored as such; a member may leave rounds and slots out, and so choose among its own as far as
receivers let it (`protocol.swarm.pace`). Nor can a member share one group twice: another round has other problems.
"""

from protocol.encoding import tagged_hash, words


def round_problem(document: bytes, member: str, number: int, slot: int) -> int:
    """Problem seed of slot `slot` of a member's round `number`; `document`: the swarm document's digest."""
    return words(tagged_hash("muster/swarm-problem/3", document, member, number, slot), 1)[0]


def round_noise(document: bytes, member: str, number: int, slot: int, sample: int) -> tuple[int, int, int]:
    """What keys the noise of one completion. It only makes a round repeatable after a kill; nobody checks it."""
    k0, k1, k2 = words(tagged_hash("muster/swarm-noise/1", document, member, number, slot, sample), 3)
    return k0, k1, k2


def heldout_problem(document: bytes, index: int) -> int:
    """Problem seed `index` of those that members measure themselves on: the same for all, and no round's."""
    return words(tagged_hash("muster/swarm-heldout/1", document, index), 1)[0]


def heldout_noise(document: bytes, index: int) -> tuple[int, int, int]:
    """What keys the noise of the one try at a held-out problem: the same for all members and rounds, so that two
    measurements differ by their weights and not by their luck."""
    k0, k1, k2 = words(tagged_hash("muster/swarm-heldout-noise/1", document, index), 3)
    return k0, k1, k2
