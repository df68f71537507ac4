"""The token, and governance's parameters."""

from dataclasses import replace
from functools import partial
from typing import Any

from eth_account.signers.local import LocalAccount

from chain.client import ChainClient
from chain.contracts.base import Contract, ContractCall, address, integer
from chain.deployment import Deployment
from chain.transactions import Receipt
from protocol import eip712

MAX_UINT256 = (1 << 256) - 1


Permit = tuple[int, int, bytes, bytes]
"""An ERC-2612 permit: deadline, v, r, s."""


class Token(Contract):
    """Amounts are grains."""

    name = "MusterToken"

    def balance_of(self, owner: str) -> int:
        return int(self.read("balanceOf", address(owner, "owner")))

    def allowance(self, owner: str, spender: str) -> int:
        return int(self.read("allowance", owner, spender))

    def mint(self, to: str, grains: int) -> ContractCall[Receipt]:
        return self.call("mint", address(to, "to"), integer(grains, MAX_UINT256, "amount"))

    def faucet(self, grains: int) -> ContractCall[Receipt]:
        return self.call("faucet", integer(grains, MAX_UINT256, "amount"))

    def transfer(self, to: str, grains: int) -> ContractCall[Receipt]:
        return self.call("transfer", address(to, "to"), integer(grains, MAX_UINT256, "amount"))

    def approve(self, spender: str, grains: int) -> ContractCall[Receipt]:
        return self.call("approve", address(spender, "spender"), integer(grains, MAX_UINT256, "amount"))

    def approval(self, spender: str, grains: int) -> ContractCall[Receipt] | None:
        """What the client's account has to approve so that `spender` may take `grains`; None if it may already."""
        return None if self.allowance(self.client.address, spender) >= grains else self.approve(spender, grains)

    def sign_permit(self, owner: LocalAccount, spender: str, grains: int, deadline: int) -> Permit:
        """The owner's permit for `spender` to take `grains` until `deadline`."""
        domain = eip712.Domain(self.read("name"), "1", self.deployment.chain_id, self.address)
        struct = "Permit(address owner,address spender,uint256 value,uint256 nonce,uint256 deadline)"
        nonce = self.read("nonces", owner.address)
        digest = eip712.digest(domain, struct, owner.address, spender, grains, nonce, deadline)
        signature = eip712.sign(owner, digest)
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

    def unbonding(self) -> int:
        """Seconds a validator's bond stays after leaving."""
        return int(self.read("unbonding"))

    def unbonding_of(self, terms: tuple[object, ...]) -> int:
        """Seconds that stake of a pool with these terms stays locked; raises ContractError `BadTerms`."""
        return int(self.read("checkTerms", terms))
