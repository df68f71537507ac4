"""Inner work that costs next to nothing and is a real one: next letters of lines of text, by a table of logits."""

import random
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.site_lines import TASKS, text
from protocol.errors import IntegrityError
from protocol.sites.layout import F32, Tensors
from trainer.sites.inner import SAVED, Saving, Share

LETTERS, RATE = 128, np.float32(0.5)


class LateSaving:
    """A `Saving` by a thread."""

    def __init__(self, write: Callable[[], None]) -> None:
        with_it = ThreadPoolExecutor(1, "letters")
        self._written = with_it.submit(write)
        with_it.shutdown(wait=False)

    def done(self) -> bool:
        return self._written.done()

    def finish(self) -> None:
        self._written.result()


class LetterTable:
    """A softmax regression from a letter to the next, trained by gradient descent with momentum; which lines an inner
    step takes follows from `place`, a cursor, and from the site's share. `saving`: seconds that writing it takes, as a
    large model's does."""

    def __init__(self, batch: int = 8, saving: float = 0.0) -> None:
        dice = np.random.default_rng(0)
        self.table = (0.01 * dice.standard_normal((LETTERS, LETTERS))).astype(np.float32)
        self.bias = np.zeros(LETTERS, np.float32)
        self.velocity: dict[str, F32] = {name: np.zeros_like(one) for name, one in self.weights().items()}
        self.place, self._batch, self._saving = 0, batch, saving

    def weights(self) -> Tensors:
        return {"table": self.table.copy(), "bias": self.bias.copy()}

    def load(self, weights: Tensors) -> None:
        self.table, self.bias = np.array(weights["table"]), np.array(weights["bias"])

    def train(self, share: Share, number: int) -> int:
        lines: list[bytes] = []
        while len(lines) < self._batch:
            item, self.place = self.place.to_bytes(32, "big"), self.place + 1
            if share.mine(item):
                lines.append(line(self.place))
        before = np.frombuffer(b"".join(one[:-1] for one in lines), np.uint8)
        after = np.frombuffer(b"".join(one[1:] for one in lines), np.uint8)
        for name, gradient in self._gradients(before, after).items():
            self.velocity[name] = np.float32(0.5) * self.velocity[name] + gradient
            setattr(self, name, (getattr(self, name) - RATE * self.velocity[name]).astype(np.float32))
        return len(before)

    def figures(self) -> dict[str, float]:
        return {}

    def loss(self, first: int, count: int) -> float:
        """Mean loss (nats) of lines that no site trains on."""
        lines = [line(-1 - number) for number in range(first, first + count)]
        before = np.frombuffer(b"".join(one[:-1] for one in lines), np.uint8)
        after = np.frombuffer(b"".join(one[1:] for one in lines), np.uint8)
        return float(-np.log(self._chances(before)[np.arange(len(after)), after]).mean())

    def save(self, folder: Path) -> Saving:
        folder.mkdir()
        kept: dict[str, Any] = {**self.weights(), "place": np.array(self.place)}
        kept |= {f"velocity.{name}": one for name, one in self.velocity.items()}

        def write() -> None:
            time.sleep(self._saving)
            np.savez(folder / "work.npz", **kept)

        if self._saving:
            return LateSaving(write)
        write()
        return SAVED

    def restore(self, folder: Path) -> None:
        try:
            with np.load(folder / "work.npz") as kept:
                self.load({"table": kept["table"], "bias": kept["bias"]})
                self.velocity = {name: kept[f"velocity.{name}"] for name in ("table", "bias")}
                self.place = int(kept["place"])
        except (OSError, ValueError, KeyError) as error:
            raise IntegrityError(f"{folder} is damaged: {error}") from None

    def _chances(self, before: Any) -> F32:
        logits = self.table[before] + self.bias
        logits -= logits.max(1, keepdims=True)
        powers = np.exp(logits)
        chances: F32 = (powers / powers.sum(1, keepdims=True)).astype(np.float32)
        return chances

    def _gradients(self, before: Any, after: Any) -> dict[str, F32]:
        error = self._chances(before)
        error[np.arange(len(after)), after] -= 1
        error /= len(after)
        table = np.zeros_like(self.table)
        np.add.at(table, before, error)
        return {"table": table, "bias": error.sum(0)}


def line(number: int) -> bytes:
    dice = random.Random(number)
    return text(dice.choice(TASKS), dice)
