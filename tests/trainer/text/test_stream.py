"""The stream of tokens: every document once an epoch, every token predicted once, and on from any cursor."""

import random
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import pairwise

import pytest

from protocol.sites.dealing import dealt_to
from trainer.text.stream import Cursor, TextStream

SEED = bytes(range(32))
SITES = ["0x" + f"{number:040x}" for number in range(4)]


class Numbers:
    """Documents of given lengths, whose tokens say which they are; the last one is an end."""

    def __init__(self, lengths: Sequence[int]) -> None:
        self.lengths = lengths

    def __len__(self) -> int:
        return len(self.lengths)

    def text(self, number: int) -> str:
        return str(number)

    def encode(self, text: str) -> tuple[int, ...]:
        return tuple(1000 * int(text) + at for at in range(self.lengths[int(text)]))


def stream(documents: Numbers, longest: int) -> TextStream:
    return TextStream(documents, len(documents), documents.encode, SEED, longest)


def of(site: str, sites: Sequence[str]) -> Callable[[int], bool]:
    return lambda place: dealt_to(SEED, place.to_bytes(32, "big"), sites) == site


def all_mine(_: int) -> bool:
    return True


@pytest.mark.parametrize(("batch", "longest"), [(2, 2), (3, 8), (7, 5), (64, 16), (1000, 1000)])
def test_each_token_but_a_documents_first_is_predicted_once_an_epoch(batch: int, longest: int) -> None:
    documents = Numbers([1, 2, 3, 40, 7, 1, 12])
    made = stream(documents, longest)
    predicted: Counter[int] = Counter()
    while made.cursor.place < len(documents):
        pieces = made.take(batch, lambda place: place < len(documents))
        assert sum(map(len, pieces)) <= batch
        assert all(2 <= len(piece) <= longest for piece in pieces)
        assert all(after == before + 1 for piece in pieces for before, after in pairwise(piece))
        predicted.update(token for piece in pieces for token in piece[1:])
        if sum(map(len, pieces)) < batch - 1:
            break
    wanted = [1000 * number + at for number, size in enumerate(documents.lengths) for at in range(1, size)]
    assert predicted == Counter(wanted)


def test_a_batch_is_full_but_for_one_token_at_most() -> None:
    made = stream(Numbers([5, 9, 33, 2, 17]), 8)
    for _ in range(200):
        assert sum(map(len, made.take(50, all_mine))) in (49, 50)


def test_it_goes_on_from_any_cursor_to_the_token() -> None:
    dice = random.Random(5)
    documents = Numbers([dice.randint(1, 30) for _ in range(20)])
    whole = stream(documents, 11)
    for _ in range(100):
        resumed = stream(documents, 11)
        resumed.cursor = Cursor(whole.cursor.place, whole.cursor.offset)
        batch = dice.randint(2, 40)
        mine = of(SITES[dice.randrange(3)], SITES[:3])
        assert resumed.take(batch, mine) == whole.take(batch, mine)
        assert resumed.cursor == whole.cursor


def test_each_document_of_an_epoch_is_one_sites_and_epochs_differ() -> None:
    documents = Numbers([4] * 60)
    streams = {site: stream(documents, 8) for site in SITES}
    epochs: list[list[int]] = []
    for epoch in range(2):
        found: list[int] = []
        for site, one in streams.items():
            while one.cursor.place < 60 * (epoch + 1):
                pieces = one.take(4, of(site, SITES))
                if one.cursor.place <= 60 * (epoch + 1):
                    found += [piece[0] // 1000 for piece in pieces]
                else:
                    one.cursor = Cursor(60 * (epoch + 1))
        assert sorted(found) == list(range(60))
        epochs.append(found)
    assert epochs[0] != epochs[1]


def test_who_joins_takes_only_what_it_is_dealt_and_nothing_behind_its_place() -> None:
    """Four sites read, one leaves in mid-epoch: what it had not come to goes to the others, once each."""
    documents = Numbers([6] * 400)
    streams = {site: stream(documents, 8) for site in SITES}
    seen: Counter[int] = Counter()
    for _ in range(30):
        for site, one in streams.items():
            seen.update(piece[0] // 1000 for piece in one.take(6, of(site, SITES)))
    left = streams.pop(SITES[3])
    places = {site: one.cursor.place for site, one in streams.items()}
    assert max(places.values()) < 400
    for site, one in streams.items():
        while True:
            pieces = one.take(6, lambda place, site=site: place < 400 and of(site, SITES[:3])(place))  # type: ignore[misc]
            if not pieces:
                break
            seen.update(piece[0] // 1000 for piece in pieces)
    between = range(min(*places.values(), left.cursor.place), max(*places.values(), left.cursor.place))
    odd = {number for number in range(400) if seen[number] != 1}
    assert odd <= {left.document(place) for place in between}, "only between where the sites stood"
    mine = of(SITES[3], SITES)
    lost = {left.document(place) for place in range(400) if mine(place)} & odd
    assert odd == lost, "and only what was dealt to who left"


def test_nothing_is_dealt_to_a_stranger_and_it_does_not_search_for_ever() -> None:
    made = stream(Numbers([3] * 10), 8)
    assert made.take(6, lambda _: False) == []
    assert stream(Numbers([1] * 10), 8).take(6, all_mine) == []


def test_skipping_never_goes_back() -> None:
    made = stream(Numbers([30] * 10), 8)
    made.take(8, all_mine)
    begun = made.cursor
    assert begun.offset
    made.skip_to(begun.place)
    assert made.cursor == begun
    made.skip_to(7)
    assert made.cursor == Cursor(7)
    made.skip_to(3)
    assert made.cursor == Cursor(7)
