"""Whose places a file server's are, and who has to give one back."""

from validator.retention import Admission, Place


class Door:
    """An admission with a clock of the test's own, and what became of each connection."""

    def __init__(self) -> None:
        self.now = 0.0
        self.admission = Admission(lambda: self.now)
        self.ended: list[str] = []

    def enter(self, address: str) -> Place | None:
        return self.admission.enter(address, lambda: self.ended.append(address))

    def all_of(self, address: str, count: int) -> list[Place]:
        return [place for _ in range(count) if (place := self.enter(address)) is not None]


def test_one_address_has_a_part_of_the_room_and_of_the_minute() -> None:
    door = Door()
    first = door.all_of("198.51.100.1", 9)
    assert len(first) == 8
    for place in first:
        door.admission.leave(place)
    taken = 0
    for _ in range(100):
        for place in door.all_of("198.51.100.1", 1):
            door.admission.leave(place)
            taken += 1
    assert taken == 60 - 9
    assert len(door.all_of("127.0.0.1", 40)) == 32, "a proxy may have all"
    door.now = 60.0
    assert door.enter("198.51.100.1")


def test_an_ipv6_network_is_one_address_and_this_machines_are_a_proxys() -> None:
    door = Door()
    places = [door.enter(f"2001:db8:1:2::{host:x}") for host in range(9)]
    assert [place is not None for place in places] == [True] * 8 + [False]
    assert door.enter("2001:db8:1:3::1")
    assert places[0] is not None
    door.admission.leave(places[0])
    assert door.enter("2001:db8:1:2::1")
    assert len(door.all_of("::ffff:127.0.0.1", 9)) == 9, "a proxy, seen by a server of both families"
    assert len(door.all_of("::ffff:198.51.100.1", 9)) == 8


def test_a_newcomer_takes_the_slowest_place_of_the_network_that_has_most() -> None:
    door = Door()
    slow = [door.all_of(f"198.51.{network}.1", 8) for network in range(4)]
    door.now = 10.0
    for place in (*slow[0], *slow[1], *slow[3]):
        place.sent = 1 << 20
    juror = door.enter("203.0.113.1")
    assert juror is not None
    assert door.ended == ["198.51.2.1"]
    for network in range(4):
        door.all_of(f"198.51.{network}.1", 9)
    assert "203.0.113.1" not in door.ended, "who has one place keeps it, though it has read nothing yet"


def test_many_addresses_of_one_network_take_places_from_one_another_only() -> None:
    door = Door()
    for host in range(1, 32):
        assert door.enter(f"198.51.100.{host}")
    assert door.enter("203.0.113.1")
    door.now = 10.0
    for host in range(32, 250):
        door.enter(f"198.51.100.{host}")
    assert "203.0.113.1" not in door.ended
    assert len(door.ended) > 20, "slow ones make room for their own network's"


def test_behind_a_proxy_slow_ones_make_room_and_ordinary_ones_stay() -> None:
    door = Door()
    places = door.all_of("127.0.0.1", 32)
    assert door.enter("127.0.0.1") is None, "nobody is slow yet"
    door.now = 10.0
    for place in places[1:]:
        place.sent = 10 << 20
    assert door.enter("127.0.0.1")
    assert door.enter("127.0.0.1") is None
    assert len(door.ended) == 1


def test_a_place_that_was_taken_is_given_back_once() -> None:
    door = Door()
    places = [place for network in range(4) for place in door.all_of(f"198.51.{network}.1", 8)]
    assert door.enter("203.0.113.1")
    for place in places:
        door.admission.leave(place)
        door.admission.leave(place)
    assert all(door.enter(f"192.0.{network}.1") for network in range(40))
