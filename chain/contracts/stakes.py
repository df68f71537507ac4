"""Operators' stake and validators' seats."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from chain.contracts.base import ContractCall, record
from chain.contracts.token import Permit, TokenTaker
from chain.transactions import Receipt
from protocol.accounts import LocalAccount

CONSENT = "Consent(address node,address operator,uint256 expiry)"

DRAW_REACH = 3
"""Epochs after its own in which a seed can still be drawn with, and so after leaving in which a seat can be drawn."""


@dataclass(frozen=True)
class NodeView:
    """What is asked of IStakes.Node now. `operator` is the zero address when the node is unknown."""

    operator: str
    stake: int
    pool: int
    frozen: int
    release_at: int


@dataclass(frozen=True)
class SeatView:
    """What is asked of ISeats.Seat now."""

    owner: str
    voter: str
    bond: int
    left_epoch: int
    release_at: int
    frozen: int


class Stakes(TokenTaker):
    """Called by operators."""

    name = "Stakes"

    def sign_consent(self, node: LocalAccount, operator: str, expiry: int) -> bytes:
        """The node key's consent to belong to `operator`, usable until `expiry` (chain time)."""
        return self.signed(node, "muster-stakes", CONSENT, node.address, operator, expiry)

    def register_node(self, node: str, amount: int, expiry: int, consent: bytes) -> ContractCall[Receipt]:
        """Register `node` under the caller with `amount` grains at stake."""
        return self._taking(amount, "registerNode", node, amount, expiry, consent)

    def register_node_with_permit(
        self, node: str, amount: int, expiry: int, consent: bytes, permit: Permit
    ) -> ContractCall[Receipt]:
        """The same with a permit in place of an approval."""
        call = self.call("registerNodeWithPermit", node, amount, expiry, consent, permit)
        return replace(call, grains=amount)

    def deposit(self, node: str, amount: int) -> ContractCall[Receipt]:
        """Add `amount` grains; follow with `pools.refresh` to raise the limit in the node's pool."""
        return self._taking(amount, "deposit", node, amount)

    def withdraw(self, node: str, amount: int) -> ContractCall[Receipt]:
        """Take `amount` grains of unlocked stake back."""
        return self.call("withdraw", node, amount)

    def node_of(self, node: str) -> NodeView:
        return record(NodeView, self.read("nodeOf", node))

    def withdrawable(self, node: str) -> int:
        return int(self.read("withdrawable", node))


class Seats(TokenTaker):
    """Called by validators' owners."""

    name = "Seats"

    def open_seat(self, voter: str, groups: Sequence[int]) -> ContractCall[int]:
        """Bond one seat for the hot key `voter`; returns its number. Drawable for `groups` from the next epoch."""
        call = self._taking(self.bond(), "openSeat", voter, list(groups))
        return self._returning(call, "SeatOpened", "seat")

    def opt_in(self, seat: int, validator_group: int) -> ContractCall[Receipt]:
        """Judge the pools of one class more, from the next epoch on."""
        return self.call("optIn", seat, validator_group)

    def opt_out(self, seat: int, validator_group: int) -> ContractCall[Receipt]:
        """Judge them no more; what is drawn from earlier epochs stays a duty."""
        return self.call("optOut", seat, validator_group)

    def set_voter(self, seat: int, voter: str) -> ContractCall[Receipt]:
        return self.call("setVoter", seat, voter)

    def top_up(self, seat: int) -> ContractCall[Receipt]:
        """Fill the bond of `seat` up to the full bond; nothing is taken from a complete one."""
        return self._taking(max(self.bond() - self.seat_of(seat).bond, 0), "topUp", seat)

    def leave_seat(self, seat: int) -> ContractCall[Receipt]:
        return self.call("leaveSeat", seat)

    def unbond_seat(self, seat: int) -> ContractCall[Receipt]:
        """Start the unbonding period of a seat that has left."""
        return self.call("unbondSeat", seat)

    def withdraw_seat(self, seat: int) -> ContractCall[Receipt]:
        """Take the bond back after the unbonding period."""
        return self.call("withdrawSeat", seat)

    def seat_of(self, seat: int) -> SeatView:
        return record(SeatView, self.read("seatOf", seat))

    def bond(self) -> int:
        return int(self.read("bond"))

    def epoch_blocks(self) -> int:
        return int(self.read("epochBlocks"))

    def current_epoch(self) -> int:
        return int(self.read("currentEpoch"))
