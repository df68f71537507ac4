"""A run of three workers over a model of a few tensors."""

from collections.abc import Sequence

import numpy as np

from diloco.codec import F32, TensorLayout
from diloco.config import DilocoConfig, DilocoRun
from diloco.messages import Contribution, Expected, ShardEntry
from diloco.outer import OuterState, encode_payload
from protocol.accounts import Account, LocalAccount
from protocol.encoding import sha256_hex

KEYS: list[LocalAccount] = [Account.from_key(bytes([number + 1]) * 32) for number in range(4)]
RUN = DilocoRun(
    name="a",
    coordinator=KEYS[3].address,
    workers=tuple(str(one.address) for one in KEYS[:3]),
    settings=DilocoConfig(inner_steps=10, shards=3),
)


def random_tensors(seed: int, scale: float = 1.0) -> dict[str, F32]:
    dice = np.random.default_rng(seed)
    shapes = {"b.weight": (40, 30), "a.norm": (7,), "c.scalar": (), "d.empty": (0, 4), "e.weight": (3000,)}
    return {name: (scale * dice.standard_normal(shape)).astype(np.float32) for name, shape in shapes.items()}


STATE = OuterState.start(random_tensors(0))
LAYOUT = TensorLayout.of(STATE.weights)
SHARDS = LAYOUT.shards(3)
EXPECTED = Expected(RUN, STATE.step, STATE.digest.hex(), LAYOUT)


def payload_of(worker: str, gradient: dict[str, F32], expected: Expected = EXPECTED) -> tuple[bytes, ...]:
    return encode_payload(STATE, gradient, expected, worker)[0]


def shard_entry(data: bytes) -> ShardEntry:
    return ShardEntry(sha256=sha256_hex(data), size=len(data))


def contribution_of(worker: str, payload: Sequence[bytes], expected: Expected = EXPECTED) -> Contribution:
    return Contribution(
        run=expected.run.digest, worker=worker, step=expected.step, base=expected.base, inner_steps=10, tokens=5000,
        items=list(expected.items(worker)), mode=expected.run.settings.mode, shards=[*map(shard_entry, payload)],
    )  # fmt: skip
