"""What identifies a swarm: the same document on another contract, or under another number, is another swarm."""

from dataclasses import dataclass

from protocol import signing

DOMAIN = "muster-swarm"
"""Of what members sign."""


@dataclass(frozen=True, slots=True)
class SwarmId:
    """Number `swarm` of the Swarms contract at `swarms` (EIP-55) on chain `chain_id`."""

    chain_id: int
    swarms: str
    swarm: int

    @property
    def domain(self) -> signing.Domain:
        """The EIP-712 domain of what its members sign."""
        return signing.Domain(DOMAIN, "1", self.chain_id, self.swarms)

    def __str__(self) -> str:
        return f"swarm {self.swarm} of {self.swarms} on chain {self.chain_id}"


NO_CHAIN = SwarmId(0, "0x" + "00" * 20, 0)
"""Of a swarm that no chain knows."""
