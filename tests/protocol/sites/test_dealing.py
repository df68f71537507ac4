"""Each item is exactly one site's, by a rule that moves little when sites come and go."""

from collections import Counter

import pytest

from protocol.sites.dealing import Dealing, dealt_evenly, dealt_to
from tests.protocol.sites.samples import KEYS

SITES = [key.address for key in KEYS]
SEED = b"\x07" * 32
ITEMS = [number.to_bytes(32, "big") for number in range(2000)]


def test_every_item_is_of_one_site_whatever_the_order() -> None:
    found = [dealt_to(SEED, item, SITES) for item in ITEMS]
    assert found == [dealt_to(SEED, item, SITES[::-1]) for item in ITEMS]
    assert all(400 < count < 600 for count in Counter(found).values())
    assert found != [dealt_to(b"\x08" * 32, item, SITES) for item in ITEMS]


def test_only_the_items_of_who_left_move() -> None:
    for item in ITEMS:
        before, after = dealt_to(SEED, item, SITES), dealt_to(SEED, item, SITES[1:])
        assert after == before or before == SITES[0]


def test_nobody_is_dealt_nothing() -> None:
    with pytest.raises(ValueError):
        dealt_to(SEED, ITEMS[0], [])


def test_dealt_evenly_every_item_is_of_one_site() -> None:
    for count in (0, 1, 3, 7, 8):
        items = ITEMS[:count]
        dealt = dealt_evenly(SEED, items, SITES)
        assert sorted(one for mine in dealt.values() for one in mine) == sorted(items)
        sizes = [len(mine) for mine in dealt.values()]
        assert max(sizes) - min(sizes) <= 1
        assert dealt == dealt_evenly(SEED, [*items[::-1], *items[:1]], SITES[::-1])
    assert dealt_evenly(SEED, ITEMS[:8], SITES) != dealt_evenly(b"\x08" * 32, ITEMS[:8], SITES)


def test_a_dealing_names_what_is_dealt_evenly() -> None:
    dealing = Dealing(SEED, tuple(ITEMS[:7]), tuple(SITES))
    dealt = dealt_evenly(SEED, ITEMS[:7], SITES)
    assert {site: set(dealing.of(site)) for site in SITES} == {
        site: {one.hex() for one in mine} for site, mine in dealt.items()
    }
    assert all(list(dealing.of(site)) == sorted(dealing.of(site)) for site in SITES)
    assert dealing.of("0xstranger") == ()
