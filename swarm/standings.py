"""Where the keys stand that signed a swarm's envelopes: by the chain, or by a list of friends."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from chain.swarms import Swarms
from protocol.swarm.seeds import NO_START
from swarm.registry import starts_of


@dataclass(frozen=True)
class MemberStanding:
    """Where a key stands. `start`: what its problems follow from, None of who joined so lately that it is not fixed;
    `stake` in grains; `recorded`: the first round that no root of it on chain covers."""

    word: str
    start: bytes | None
    stake: int = 0
    recorded: int = 0


StandingsOf = Callable[[Sequence[str]], dict[str, MemberStanding]]
"""Asks about these addresses; who is left out is a stranger. Raises MusterError."""


def friends(members: Sequence[str]) -> StandingsOf:
    """Of a swarm that no chain knows; () is everybody."""
    return lambda asked: {one: MemberStanding("friend", NO_START) for one in asked if not members or one in members}


def on_chain(swarms: Swarms, number: int, confirmations: int) -> StandingsOf:
    """Of swarm `number`, read anew whenever it is asked. A start is fixed for a receiver once so many blocks lie on its
    block, and no earlier here: with another one in its place honest envelopes would look like breaches."""

    def standings(asked: Sequence[str]) -> dict[str, MemberStanding]:
        fixed_before = swarms.client.head().number - confirmations
        joined = [one for one in swarms.members_of(number, asked) if one.joined_block]
        fixed = [one for one in joined if one.joined_block < fixed_before]
        starts = dict(zip((one.member for one in fixed), starts_of(swarms, fixed), strict=True))
        words = {one.member: "ejected" if one.ejected else "member" if one.active else "left" for one in joined}
        return {
            one.member: MemberStanding(words[one.member], starts.get(one.member), one.stake, one.next_round)
            for one in joined
        }

    return standings
