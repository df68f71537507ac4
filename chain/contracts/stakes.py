"""Operators' stake and validators' seats."""

from dataclasses import dataclass

from eth_account.signers.local import LocalAccount

from chain.contracts.base import UINT56, Contract, address, integer, record
from chain.contracts.token import Permit, Token
from chain.sender import Receipt
from protocol import eip712

CONSENT = "Consent(address node,address operator,uint256 expiry)"


@dataclass(frozen=True)
class NodeView:
    """A node now: see IStakes.Node. Operator is the zero address when the node is unknown."""

    operator: str
    stake: int
    pool: int
    last_pool: int
    frozen: int
    release_at: int


@dataclass(frozen=True)
class SeatView:
    """A seat now: see ISeats.Seat."""

    owner: str
    voter: str
    bond: int
    active_from: int
    left_epoch: int
    release_at: int
    frozen: int


class Stakes(Contract):
    """Called by operators; approvals are made as needed."""

    name = "Stakes"

    def sign_consent(self, node: LocalAccount, operator: str, expiry: int) -> bytes:
        """The node key's consent to belong to `operator`, usable until `expiry` (chain time)."""
        digest = eip712.digest(
            self.domain("muster-stakes"), CONSENT, node.address, address(operator, "operator"), expiry
        )
        return eip712.sign(node, digest)

    def register_node(self, node: str, amount: int, expiry: int, consent: bytes) -> Receipt:
        """Register `node` under the caller with `amount` grains at stake."""
        integer(amount, UINT56, "stake")
        self._token().ensure_allowance(self.address, amount)
        return self.send("registerNode", address(node, "node"), amount, expiry, consent)

    def register_node_with_permit(self, node: str, amount: int, expiry: int, consent: bytes, permit: Permit) -> Receipt:
        """The same in one transaction."""
        integer(amount, UINT56, "stake")
        return self.send("registerNodeWithPermit", address(node, "node"), amount, expiry, consent, permit.as_tuple())

    def deposit(self, node: str, amount: int) -> Receipt:
        """Add stake; follow with `pools.refresh` to raise the limit in the node's pool."""
        self._token().ensure_allowance(self.address, integer(amount, UINT56, "stake"))
        return self.send("deposit", address(node, "node"), amount)

    def withdraw(self, node: str, amount: int) -> Receipt:
        return self.send("withdraw", address(node, "node"), integer(amount, UINT56, "amount"))

    def node_of(self, node: str) -> NodeView:
        return record(NodeView, self.read("nodeOf", address(node, "node")))

    def withdrawable(self, node: str) -> int:
        return int(self.read("withdrawable", address(node, "node")))

    def _token(self) -> Token:
        return Token(self.client, self.deployment)


class Seats(Contract):
    """Called by validators' owners; approvals are made as needed."""

    name = "Seats"

    def open_seat(self, voter: str) -> int:
        """Bond one seat for the hot key `voter`; returns its number. Drawable from the next epoch."""
        Token(self.client, self.deployment).ensure_allowance(self.address, self.bond())
        receipt = self.send("openSeat", address(voter, "voter"))
        return int(self.event(receipt, "SeatOpened").args["seat"])

    def seat_of(self, seat: int) -> SeatView:
        return record(SeatView, self.read("seatOf", seat))

    def bond(self) -> int:
        return int(self.read("bond"))

    def min_bond(self) -> int:
        return int(self.read("minBond"))

    def epoch_blocks(self) -> int:
        return int(self.read("epochBlocks"))

    def current_epoch(self) -> int:
        return int(self.read("currentEpoch"))
