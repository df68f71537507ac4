"""An honest member signs no round twice, whatever it loses, and whatever it is started from."""

import shutil

from swarm.envelope import EnvelopeLimits, open_envelope
from tests.swarm.world import DOCUMENT, SwarmWorld, one_round

LIMITS = EnvelopeLimits.of(DOCUMENT)


def rounds_of(world: SwarmWorld, name: int) -> list[int]:
    """Rounds of the envelopes of a member that anybody can find."""
    all_of = [open_envelope(path.read_bytes(), LIMITS) for path in world.exchange.glob("envelopes/*/*.json")]
    return sorted(one.round for one in all_of if one.member == world.account(name).address)


def check(rounds: list[int]) -> None:
    assert rounds
    assert len(rounds) == len(set(rounds)), "a round was signed twice: whoever shows both takes half of the stake"


def test_a_copy_of_a_home_signs_nothing_that_the_exchange_has(world: SwarmWorld) -> None:
    made = world.member(0)
    one_round(made)
    backup = shutil.copytree(made.progress.home, world.root / "backup")
    world.share(made, 2)
    restored = world.member(0, home=backup, temperature=0.98)
    assert restored.progress.next == 1
    while restored.progress.next < made.progress.next:
        one_round(restored)
    check(rounds_of(world, 0))


def test_a_new_home_of_an_old_key_signs_nothing_that_the_exchange_has(world: SwarmWorld) -> None:
    """Also where the member reads named others only, and where it first learns of it with an envelope to send."""
    made = world.member(0)
    world.share(made, 2)
    anew = world.member(0, home=world.root / "anew", temperature=0.98, members=(world.account(1).address,))
    away = world.exchange.rename(world.root / "away")
    one_round(anew)
    away.rename(world.exchange)
    while anew.progress.next < made.progress.next:
        one_round(anew)
    check(rounds_of(world, 0))
    assert not anew.member.status(made.progress.next)["unsent"]
