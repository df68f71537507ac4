"""A run of three sites over a model of a few tensors."""

import numpy as np

from protocol import signing
from protocol.accounts import Account, LocalAccount
from protocol.encoding import canonical_json
from protocol.identity import PoolId
from protocol.sites.config import SitesConfig
from protocol.sites.contribution import Contribution, ContributionLimits
from protocol.sites.layout import F32, TensorLayout
from protocol.sites.outer import OuterState

POOL = PoolId(31337, "0x" + "22" * 20, 7)
KEYS: list[LocalAccount] = [Account.from_key(bytes([number + 1]) * 32) for number in range(4)]
CONFIG = SitesConfig(inner_steps=10, shards=3)


def random_tensors(seed: int, scale: float = 1.0) -> dict[str, F32]:
    dice = np.random.default_rng(seed)
    shapes = {"b.weight": (40, 30), "a.norm": (7,), "c.scalar": (), "d.empty": (0, 4), "e.weight": (3000,)}
    return {name: (scale * dice.standard_normal(shape)).astype(np.float32) for name, shape in shapes.items()}


STATE = OuterState.start(random_tensors(0))
LAYOUT = TensorLayout.of(STATE.weights)
LIMITS = ContributionLimits.of(POOL, CONFIG, STATE.step, STATE.digest, LAYOUT)


def sealed_as_it_is(made: Contribution, account: LocalAccount) -> bytes:
    """Signed by its site, whatever it says."""
    signature = "0x" + signing.sign(account, made.signed_digest).hex()
    return canonical_json({"contribution": made.model_dump(mode="json"), "signature": signature})
