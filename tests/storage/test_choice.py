"""Which source is asked, and when another one is."""

from itertools import pairwise

from storage.sources import MIN_HEDGE_SECONDS, SILENCE_SECONDS, SourceSelection, comes_before, is_late

MB = 1 << 20


def test_of_the_unknown_the_one_named_first_is_asked() -> None:
    selection = SourceSelection(["b", "a", "c"])
    assert [selection.begin(["b", "a", "c"], MB)[0] for _ in range(3)] == ["b", "a", "c"]


def test_the_spared_one_is_asked_only_where_the_others_fail() -> None:
    selection = SourceSelection(["service", "relay"], avoided=["service"])
    assert [selection.begin(["service", "relay"], MB)[0] for _ in range(8)] == ["relay"] * 8
    for stats in selection.stats.values():
        stats.busy = 0
        stats.succeeded(MB, 1.0)
    assert selection.begin(["service", "relay"], MB)[0] == "relay"
    for _ in range(3):
        selection.stats_of("relay").failed()
    assert selection.begin(["service", "relay"], MB)[0] == "service", "a liar is not asked first for ever"


def test_a_drip_is_not_waited_for_where_there_is_another() -> None:
    selection = SourceSelection(["drip", "service"], avoided=["service"])
    selection.stats_of("drip").succeeded(10, 10.0)
    assert selection.begin(["drip"], MB)[1] > 1e5
    assert selection.begin(["drip", "service"], MB)[0] == "service"


def test_who_stands_still_is_late_however_much_it_sent() -> None:
    assert not is_late(2.0, 0.0, MB // 2, MB, 60.0)
    assert is_late(4.0, SILENCE_SECONDS, MB // 2, MB, 60.0)
    assert is_late(2.0, 0.0, 10, MB, 60.0)
    assert is_late(MIN_HEDGE_SECONDS, MIN_HEDGE_SECONDS, 0, MB, MIN_HEDGE_SECONDS)
    assert not is_late(MIN_HEDGE_SECONDS, MIN_HEDGE_SECONDS, 0, MB, 60.0)


def test_no_two_wait_for_each_other_and_every_object_has_an_order_of_its_own() -> None:
    names = [f"http://{number}" for number in range(20)]
    firsts = set()
    for number in range(200):
        key = f"shards/{number}"
        order = sorted(names, key=lambda name: sum(comes_before(key, other, name) for other in names))
        assert all(comes_before(key, one, other) for one, other in pairwise(order))
        assert not any(comes_before(key, other, one) for one, other in pairwise(order))
        firsts.add(order[0])
    assert firsts == set(names)
