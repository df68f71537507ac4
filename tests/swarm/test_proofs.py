"""A proof of two envelopes of one round is drawn as soon as both can be read, and once."""

from pathlib import Path
from typing import Any

from protocol.errors import UnreachableError
from protocol.swarm.envelope import seal
from storage.keys import MissingObjectError
from swarm.exchange import envelope_key
from swarm.proofs import ProofDrawer
from tests.protocol.swarm.samples import KEYS, LIMITS, honest_envelope
from tests.swarm.test_hostile_exchange import FailingExchange

WHOLE = honest_envelope()
FIRST, SECOND = (
    seal(WHOLE.model_copy(update={"groups": groups}), KEYS[0]) for groups in (WHOLE.groups, WHOLE.groups[:1])
)


class SilentChain:
    """Never answers."""

    def attempt(self, what: str, do: Any, sends: bool = False) -> None:
        assert sends


def drawer_in(folder: Path) -> ProofDrawer:
    return ProofDrawer(SilentChain(), folder / "proofs", folder / "inbox")  # type: ignore[arg-type]


def test_a_first_envelope_that_cannot_be_read_now_is_looked_for_again(tmp_path: Path) -> None:
    """The second one is known by then, and does not come again."""
    exchange, drawer = FailingExchange([FIRST], {}), drawer_in(tmp_path)
    exchange.failing[envelope_key(FIRST)] = UnreachableError("S3 does not answer (500)")
    drawer.found(exchange, LIMITS, envelope_key(FIRST), SECOND)
    drawer.send()
    assert not drawer.waiting
    exchange.failing.clear()
    drawer.send()
    assert [path.stem for path in drawer.waiting] == [KEYS[0].address]


def test_what_waits_to_be_drawn_is_bounded(tmp_path: Path) -> None:
    exchange, drawer = FailingExchange([], {envelope_key(FIRST): UnreachableError("gone")}), drawer_in(tmp_path)
    for _ in range(100):
        drawer.found(exchange, LIMITS, envelope_key(FIRST), SECOND)
    assert len(drawer._undrawn) == 8
    drawer.send()
    assert len(drawer._undrawn) == 8


def test_a_first_envelope_that_was_removed_is_given_up(tmp_path: Path) -> None:
    drawer = drawer_in(tmp_path)
    exchange = FailingExchange([], {envelope_key(FIRST): MissingObjectError("gone")})
    drawer.found(exchange, LIMITS, envelope_key(FIRST), SECOND)
    assert not drawer._undrawn
