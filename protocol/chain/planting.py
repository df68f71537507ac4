"""A step's canaries: which files the pool's owner planted to fail, hidden in one root of fixed size.

The root is published with the step, before its seed is known. It always has sixteen leaves, the unused ones random, so
that nobody can tell from the root whether a step carries canaries at all.
"""

import json
import secrets
from dataclasses import dataclass
from pathlib import Path

from protocol.chain.calls.appeals import Canaries, Planted
from protocol.errors import ConfigError, IntegrityError
from protocol.keys.files import write_atomic
from protocol.rollouts import merkle

LEAVES = 16


@dataclass(frozen=True)
class Planting:
    """The canaries of one step, secret until they are opened. `files`: (node, counter) of each, at most sixteen."""

    pool: int
    step: int
    salt: bytes
    files: tuple[tuple[str, int], ...]
    padding: tuple[bytes, ...]

    @classmethod
    def plan(cls, pool: int, step: int, files: tuple[tuple[str, int], ...] = ()) -> "Planting":
        """Choose salt and padding at random. Raises ConfigError for more than sixteen files."""
        if len(files) > LEAVES:
            raise ConfigError(f"{len(files)} canaries in one step", f"plant at most {LEAVES}")
        padding = tuple(secrets.token_bytes(32) for _ in range(LEAVES - len(files)))
        return cls(pool, step, secrets.token_bytes(32), tuple(files), padding)

    @property
    def leaves(self) -> list[bytes]:
        """Sorted, so that a place tells nothing."""
        planted = [Canaries.leaf(self.salt, self.pool, self.step, node, counter) for node, counter in self.files]
        return sorted([*planted, *self.padding])

    @property
    def root(self) -> bytes:
        """What `publish_step` puts on chain."""
        return merkle.root(self.leaves)

    def opening(self, node: str, counter: int) -> Planted:
        """What opens the canary that `node` carries as its submission `counter`."""
        if (node, counter) not in self.files:
            raise ConfigError(f"no canary is planted at {node}, counter {counter}", "open one that was planted")
        leaf = Canaries.leaf(self.salt, self.pool, self.step, node, counter)
        return Planted(self.salt, merkle.proof(self.leaves, self.leaves.index(leaf)))

    def save(self, path: Path) -> None:
        """Keep it, readable by its owner only: without it a canary cannot be opened."""
        document = {
            "pool": self.pool,
            "step": self.step,
            "salt": self.salt.hex(),
            "files": self.files,
            "padding": [leaf.hex() for leaf in self.padding],
        }
        write_atomic(path, json.dumps(document).encode(), 0o600)

    @classmethod
    def load(cls, path: Path) -> "Planting":
        try:
            document = json.loads(path.read_bytes())
            return cls(
                document["pool"],
                document["step"],
                bytes.fromhex(document["salt"]),
                tuple((str(node), int(counter)) for node, counter in document["files"]),
                tuple(bytes.fromhex(leaf) for leaf in document["padding"]),
            )
        except OSError as error:
            raise ConfigError(f"cannot read {path}: {error.strerror}", "check the path") from None
        except (ValueError, KeyError, TypeError):
            raise IntegrityError(f"{path} is damaged", "its step's canaries cannot be opened any more") from None
