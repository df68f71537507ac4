"""Swarms: members' stakes, roots over what they shared, and proofs that one signed two envelopes of one round."""

from collections.abc import Sequence
from dataclasses import dataclass

from chain.contracts.base import ContractCall, record
from chain.contracts.token import TokenTaker
from chain.transactions import Receipt
from protocol.accounts import LocalAccount
from protocol.swarm.equivocation import Equivocation
from protocol.swarm.identity import DOMAIN, SwarmId

CONSENT = "Consent(uint256 swarm,address member,address owner,uint256 expiry)"
PAGE = 256
"""Members that are read at once."""


@dataclass(frozen=True)
class SwarmView:
    """ISwarms.Swarm: `stake` in grains, `delay` in seconds."""

    document: bytes
    stake: int
    delay: int


@dataclass(frozen=True)
class MemberView:
    """ISwarms.Member. `owner` is the zero address when the key never joined."""

    member: str
    owner: str
    stake: int
    joined_block: int
    release_at: int
    next_round: int
    ejected: bool

    @property
    def active(self) -> bool:
        """Whether its envelopes are to be read."""
        return self.joined_block > 0 and self.release_at == 0


class Swarms(TokenTaker):
    """Called by members and whoever pays for them, and by anybody with a proof."""

    name = "Swarms"

    def swarm_id(self, swarm: int) -> SwarmId:
        return SwarmId(self.deployment.chain_id, self.address, swarm)

    def open(self, document: bytes, stake: int, delay: int) -> ContractCall[int]:
        """Open a swarm whose members lock `stake` grains until `delay` seconds after leaving; returns its number."""
        return self._returning(self.call("open", document, stake, delay), "SwarmOpened", "swarm")

    def sign_consent(self, member: LocalAccount, swarm: int, owner: str, expiry: int) -> bytes:
        """The member key's consent that `owner` pays for it, usable until `expiry` (chain time)."""
        return self.signed(member, DOMAIN, CONSENT, swarm, member.address, owner, expiry)

    def join(self, swarm: int, stake: int, member: str, expiry: int = 0, consent: bytes = b"") -> ContractCall[Receipt]:
        """Lock the swarm's `stake` grains for `member`, who consents unless it is the caller."""
        return self._taking(stake, "join", swarm, member, expiry, consent)

    def leave(self, swarm: int, member: str) -> ContractCall[Receipt]:
        return self.call("leave", swarm, member)

    def withdraw(self, swarm: int, member: str) -> ContractCall[int]:
        """Take an ended member's stake back; returns grains."""
        return self._returning(self.call("withdraw", swarm, member), "StakeWithdrawn", "amount")

    def record(self, swarm: int, first: int, last: int, groups: int, root: bytes) -> ContractCall[Receipt]:
        """Record, as the member, the root over its envelopes of rounds `first` to `last`."""
        return self.call("record", swarm, first, last, groups, root)

    def accuse(self, proof: Equivocation) -> ContractCall[Receipt]:
        """Show two envelopes of one round. The client's account gets the reward."""
        (root_a, signed_a), (root_b, signed_b) = proof.signed
        return self.call("accuse", proof.swarm, proof.member, proof.round, root_a, signed_a, root_b, signed_b)

    def swarm_of(self, swarm: int) -> SwarmView:
        return record(SwarmView, self.read("swarmOf", swarm))

    def member_of(self, swarm: int, member: str) -> MemberView:
        return record(MemberView, self.read("memberOf", swarm, member))

    def members_of(self, swarm: int, members: Sequence[str]) -> list[MemberView]:
        """Several members, in that order."""
        parts = [list(members[first : first + PAGE]) for first in range(0, len(members), PAGE)]
        pages = self.client.read_many([self.view("membersOf", swarm, part) for part in parts]) if parts else []
        return [record(MemberView, one) for page in pages for one in page]
