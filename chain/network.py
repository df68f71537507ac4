"""Which chain to use and how a new suite is to be parametrised there: a TOML file per network."""

from pathlib import Path
from typing import Literal

from pydantic import Field

from chain.deployment import Address
from protocol.documents import Document, load_document
from protocol.errors import ConfigError

FOLDER = Path(__file__).resolve().parent / "networks"
_TOKEN_BOUND = (1 << 56) - 1


class Penalties(Document):
    """`Params.Values`, in grains; shares in 1/10000. Bounds beyond these are the contract's."""

    slash_bps: int = Field(ge=5000, le=10_000)
    reward_bps: int = Field(ge=0, le=2000)
    malformed: int = Field(ge=0, le=_TOKEN_BOUND)
    minority: int = Field(ge=1, le=_TOKEN_BOUND)
    withheld: int = Field(ge=1, le=_TOKEN_BOUND)
    overturn: int = Field(ge=1, le=_TOKEN_BOUND)
    canary_slash: int = Field(ge=1, le=_TOKEN_BOUND)
    delay_compensation: int = Field(ge=0, le=_TOKEN_BOUND)

    def as_tuple(self) -> tuple[int, ...]:
        """In the order of the struct."""
        return tuple(self.model_dump().values())


class SuiteConfig(Document):
    """Parameters fixed at deployment (seconds, blocks, grains), the first penalties, and who governs."""

    min_window: int = Field(ge=1, le=86_400)
    block_seconds: int = Field(ge=1, le=60)
    unbonding: int = Field(ge=1, le=7_776_000)
    epoch_blocks: int = Field(ge=2, le=4000)
    bond: int = Field(ge=1, le=_TOKEN_BOUND)
    min_bond: int = Field(ge=1, le=_TOKEN_BOUND)
    penalties: Penalties
    token: Address | None = None
    """An existing token of 9 decimals instead of our test token."""
    timelock_delay: int = Field(ge=1, le=7_776_000)
    """Seconds from proposing to executing what the timelock, owner of the parameters, is to do."""
    governance: Address | None = None
    """Proposes to the timelock, cancels and executes; the deployer when absent."""
    guardian: Address | None = None
    """May pause new entries at once, nothing else; governance when absent."""
    minter: Literal["governance", "timelock"] = "governance"
    """Who owns the test token, and so can mint it."""


class NetworkConfig(Document):
    """A network. `confirmations`: blocks on top of one before its events are believed."""

    name: str = Field(pattern=r"^[a-z0-9][a-z0-9-]{0,40}$")
    chain_id: int = Field(ge=1)
    rpc_urls: tuple[str, ...] = Field(min_length=1)
    confirmations: int = Field(0, ge=0, le=1000)
    explorer: str = ""
    suite: SuiteConfig

    def governed_by(self, governance: str | None, guardian: str | None) -> "NetworkConfig":
        """With these addresses in place of the file's, where they are given."""
        given = {"governance": governance, "guardian": guardian}
        suite = self.suite.model_copy(update={name: who for name, who in given.items() if who})
        return self.model_copy(update={"suite": suite})

    @classmethod
    def load(cls, which: str | Path) -> "NetworkConfig":
        """A network by the name of a file that comes with muster (`local`, `base-sepolia`), or by path."""
        path = Path(which)
        if path.suffix != ".toml":
            path = FOLDER / f"{which}.toml"
        if not path.exists():
            known = ", ".join(sorted(p.stem for p in FOLDER.glob("*.toml")))
            raise ConfigError(f"there is no network {which}", f"choose one of {known}, or name a .toml file")
        return load_document(path, cls)


def known_rpc(network: str) -> tuple[str, ...]:
    """The public RPC URLs of a network that comes with muster; none for another."""
    try:
        return NetworkConfig.load(network).rpc_urls
    except ConfigError:
        return ()
