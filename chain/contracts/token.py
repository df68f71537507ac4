"""The token, and governance's parameters."""

from dataclasses import replace
from functools import partial
from typing import Any

from chain.client import ChainClient
from chain.contracts.base import Contract, ContractCall
from chain.deployment import Deployment
from chain.transactions import Receipt
from protocol.accounts import LocalAccount

Permit = tuple[int, int, bytes, bytes]
"""An ERC-2612 permit: deadline, v, r, s."""


class Token(Contract):
    """Amounts are grains."""

    name = "MusterToken"

    def balance_of(self, owner: str) -> int:
        return int(self.read("balanceOf", owner))

    def mint(self, to: str, grains: int) -> ContractCall[Receipt]:
        return self.call("mint", to, grains)

    def transfer(self, to: str, grains: int) -> ContractCall[Receipt]:
        return self.call("transfer", to, grains)

    def approve(self, spender: str, grains: int) -> ContractCall[Receipt]:
        return self.call("approve", spender, grains)

    def approval(self, spender: str, grains: int) -> ContractCall[Receipt] | None:
        """What the client's account has to approve so that `spender` may take `grains`; None if it may already."""
        allowed = int(self.read("allowance", self.client.address, spender))
        return None if allowed >= grains else self.approve(spender, grains)

    def sign_permit(self, owner: LocalAccount, spender: str, grains: int, deadline: int) -> Permit:
        """The owner's permit for `spender` to take `grains` until `deadline`."""
        struct = "Permit(address owner,address spender,uint256 value,uint256 nonce,uint256 deadline)"
        nonce = self.read("nonces", owner.address)
        values = owner.address, spender, grains, nonce, deadline
        signature = self.signed(owner, self.read("name"), struct, *values)
        return deadline, signature[64], signature[:32], signature[32:64]


class TokenTaker(Contract):
    """A contract that takes tokens from its callers, by allowance."""

    def __init__(self, client: ChainClient, deployment: Deployment) -> None:
        super().__init__(client, deployment)
        self._token = Token(client, deployment)

    def _taking(self, grains: int, function: str, *args: Any) -> ContractCall[Receipt]:
        """A call in which this contract takes `grains`."""
        approval = partial(self._token.approval, self.address)
        return replace(self.call(function, *args), grains=grains, approval=approval)


class Params(Contract):
    """Penalties (grains, shares in 1/10000) and bounds."""

    name = "Params"

    def values(self, time: int | None = None) -> dict[str, int]:
        """`IParams.Values` for what begins at `time` (now if missing), by the struct's names."""
        return dict(self.read("values") if time is None else self.read("valuesAt", time))

    def block_seconds(self) -> int:
        """Seconds between blocks, an upper estimate."""
        return int(self.read("blockSeconds"))

    def unbonding(self) -> int:
        """Seconds a validator's bond stays after leaving."""
        return int(self.read("unbonding"))

    def unbonding_of(self, terms: tuple[object, ...]) -> int:
        """Seconds that stake of a pool with these terms stays locked; raises ContractError `BadTerms`."""
        return int(self.read("checkTerms", terms))
