"""Gas and tokens on a network where they cost nothing: a local chain makes them on request. Public test networks have
faucets of their own, and their tokens come from who governs the deployment."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from chain.suite import Suite

_LOCAL_CHAINS = frozenset({31337})
_ETHER_FAUCETS = {84532: "https://docs.base.org/base-chain/tools/network-faucets"}


class LocalFaucet:
    """A development chain (anvil) lets anybody set balances and send as anybody."""

    def __init__(self, suite: "Suite") -> None:
        self._suite = suite
        self._ask = suite.client.request

    @classmethod
    def of(cls, suite: "Suite") -> "LocalFaucet | None":
        """That of the suite's chain; None on a chain where ether or tokens could be worth anything."""
        if suite.client.chain_id not in _LOCAL_CHAINS or not suite.deployment.token.ours:
            return None
        version = str(suite.client.w3.client_version)
        return cls(suite) if version.startswith("anvil/") else None

    def ether(self, address: str, wei: int) -> None:
        self._ask("anvil_setBalance", [address, hex(wei)])

    def tokens(self, address: str, base_units: int) -> None:
        """Mint as the token's owner."""
        token = self._suite.token
        owner, call = token.read("owner"), token.mint(address, base_units)
        self.ether(owner, 10**18)
        self._ask("anvil_impersonateAccount", [owner])
        try:
            sent = self._ask("eth_sendTransaction", [dict(call.fields(owner))])
            self._suite.client.w3.eth.wait_for_transaction_receipt(sent, timeout=60)
        finally:
            self._ask("anvil_stopImpersonatingAccount", [owner])


def ether_hint(chain_id: int) -> str:
    """Where ether for gas comes from."""
    faucet = _ETHER_FAUCETS.get(chain_id)
    return f"free from {faucet}" if faucet else "from whoever has some on that chain"
