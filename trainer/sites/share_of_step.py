"""A site's own contribution on its way: made once, kept on disk before anybody hears of it, and the same bytes for as
long as the outer step it belongs to can still take it."""

import json
import logging
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from protocol.accounts import LocalAccount
from protocol.encoding import canonical_json, sha256_hex
from protocol.errors import IntegrityError
from protocol.files import remove_leftovers, write_folder
from protocol.sites.contribution import ContributionLimits, make_contribution, seal_contribution
from protocol.sites.figures import sayable
from protocol.sites.layout import TensorLayout, Tensors, cut
from protocol.sites.outer import OuterState
from protocol.sites.payload import encode_dense, encode_visible
from trainer.sites.inner import InnerWork, Saving
from trainer.sites.residual import select_visible

log = logging.getLogger("muster.sites")
_PROGRESS = "progress.json"


@dataclass
class InnerProgress:
    """Inner steps made since the outer state, their tokens, and how their data was `dealt`. `beyond`: of those
    after the contribution was made, the same; `left`: more of these are due; `sent`: the inner weights that the
    contribution was made of."""

    made: int = 0
    tokens: int = 0
    dealt: tuple[str, ...] = ()
    beyond: int = 0
    beyond_tokens: int = 0
    left: int = 0
    sent: Tensors | None = None


@dataclass(frozen=True)
class InnerSteps:
    """How much a site trained for an attempt at an outer step, how data was dealt, and what it says of it."""

    steps: int
    tokens: int
    attempt: int
    dealt: tuple[str, ...]
    figures: Mapping[str, float] = field(default_factory=dict)

    def __str__(self) -> str:
        said = (f"{name.replace('_', ' ')} {value:.6g}" for name, value in self.figures.items())
        return ", ".join([f"{self.steps} inner steps", f"{self.tokens} tokens", *said])


@dataclass(frozen=True)
class OwnContribution:
    """`document`: its signed bytes; `payload`: the shards. Made from the state of digest `base` in attempt `attempt`,
    on what was `dealt` so (`dealt_as`). `owed`: what the site owes if it counts (mode `sparse`)."""

    document: bytes
    payload: tuple[bytes, ...]
    base: str
    attempt: int
    dealt: tuple[str, ...]
    owed: Tensors | None

    @property
    def digest(self) -> str:
        return sha256_hex(self.document)


def make_own(
    state: OuterState,
    inner: Tensors,
    limits: ContributionLimits,
    account: LocalAccount,
    work: InnerSteps,
    owed: Tensors | None,
) -> OwnContribution:
    """The contribution to the outer step from `state` of a site whose inner weights are `inner` after `work`. Raises
    MalformedContribution, ValueError for what is not finite."""
    gradient = {name: value - inner[name] for name, value in state.weights.items()}
    site, settings = str(account.address), limits.config
    place, cuts = limits.place(site), state.layout.shards(settings.shards)
    if settings.mode == "sparse":
        part = select_visible(state.weights, gradient, owed)
        owed, after = part.residual, part.after
        payload = [
            encode_visible(place, number, cut(state.weights, pieces), cut(after, pieces))
            for number, pieces in enumerate(cuts)
        ]
    else:
        kind = settings.codebook if settings.mode == "int8" else None
        payload = [encode_dense(place, number, cut(gradient, pieces), kind) for number, pieces in enumerate(cuts)]
    made = make_contribution(limits, site, work.steps, max(1, work.tokens), payload, sayable(work.figures))
    document = seal_contribution(made, account)
    return OwnContribution(document, tuple(payload), limits.base, work.attempt, work.dealt, owed)


class PendingFolder:
    """The contribution that is on its way, with the inner work as it was when it was made; complete or absent."""

    def __init__(self, folder: Path, layout: TensorLayout) -> None:
        self._parent, self._layout = folder, layout
        folder.mkdir(parents=True, exist_ok=True)
        remove_leftovers(folder)

    def keep(self, step: int, own: OwnContribution, inner: InnerWork) -> None:
        def fill(folder: Path) -> None:
            saving = inner.save(folder / "inner")
            said = {
                "base": own.base, "attempt": own.attempt, "dealt": list(own.dealt), "document": own.digest,
                "shards": len(own.payload),
            }  # fmt: skip
            (folder / "document").write_bytes(own.document)
            for number, data in enumerate(own.payload):
                (folder / f"shard-{number:04d}").write_bytes(data)
            if own.owed is not None:
                write_tensors(folder / "owed", own.owed, self._layout)
            (folder / "pending.json").write_bytes(canonical_json(said))
            saving.finish()

        write_folder(self._parent / f"step-{step:010d}-{own.attempt:010d}", fill)

    def newest(self, base: str, inner: InnerWork) -> OwnContribution | None:
        """The newest one that was made from the state of digest `base`, with the inner work brought to where it was
        then; None if there is none that is whole."""
        for path in sorted(self._parent.glob("step-*"), reverse=True):
            try:
                own = self._read(path)
                if own.base == base:
                    inner.restore(path / "inner")
                    return own
            except (IntegrityError, OSError, ValueError, KeyError) as error:
                log.warning("%s cannot be used: %s", path, error)
        return None

    def drop(self) -> None:
        """The outer step is over."""
        for path in self._parent.glob("step-*"):
            shutil.rmtree(path, ignore_errors=True)

    def _read(self, path: Path) -> OwnContribution:
        said = json.loads((path / "pending.json").read_bytes())
        document = (path / "document").read_bytes()
        if sha256_hex(document) != said["document"]:
            raise IntegrityError(f"{path / 'document'} is damaged")
        payload = tuple((path / f"shard-{number:04d}").read_bytes() for number in range(said["shards"]))
        hashes = [one["sha256"] for one in json.loads(document)["contribution"]["shards"]]
        if [sha256_hex(one) for one in payload] != hashes:
            raise IntegrityError(f"a shard in {path} is damaged")
        owed = read_tensors(path / "owed", self._layout) if (path / "owed").exists() else None
        return OwnContribution(document, payload, said["base"], said["attempt"], tuple(said["dealt"]), owed)


def write_tensors(path: Path, tensors: Tensors, layout: TensorLayout) -> None:
    """Tensors of a layout as one file: SHA-256 of what follows, then float32 in the layout's order."""
    data = b"".join(np.ascontiguousarray(tensors[name], "<f4").tobytes() for name, _ in layout.shapes)
    path.write_bytes(bytes.fromhex(sha256_hex(data)) + data)


def read_tensors(path: Path, layout: TensorLayout) -> Tensors:
    """Raises IntegrityError where the file is damaged, or of another layout."""
    stored = path.read_bytes()
    data = stored[32:]
    if bytes.fromhex(sha256_hex(data)) != stored[:32] or len(data) != 4 * layout.size:
        raise IntegrityError(f"{path} is damaged")
    values, pieces = np.frombuffer(data, "<f4").astype(np.float32), layout.shards(1)
    sizes = [piece.size for piece in pieces[0]]
    return layout.joined(pieces, [np.split(values, np.cumsum(sizes)[:-1]) if sizes else []])


def write_work(
    folder: Path, inner: InnerWork, progress: InnerProgress, owed: Tensors | None, layout: TensorLayout
) -> Saving:
    """Begin to write the inner work as it stands; what the site owes (mode `sparse`) is written at once."""
    (folder / _PROGRESS).write_bytes(canonical_json({"made": progress.made, "tokens": progress.tokens}))
    if owed is not None:
        write_tensors(folder / "owed", owed, layout)
    return inner.save(folder / "inner")


def read_work(folder: Path, inner: InnerWork, layout: TensorLayout) -> tuple[InnerProgress, Tensors | None]:
    """What `write_work` wrote, taken into `inner`. Raises IntegrityError, OSError, ValueError where it is damaged."""
    inner.restore(folder / "inner")
    said, owed = json.loads((folder / _PROGRESS).read_bytes()), folder / "owed"
    progress = InnerProgress(int(said["made"]), int(said["tokens"]))
    return progress, read_tensors(owed, layout) if owed.exists() else None


def on_top(outer: Tensors, inner: Tensors, sent: Tensors | None) -> Tensors:
    """The outer weights, with what was trained since the contribution was made of `sent` on top."""
    if sent is None:
        return outer
    return {name: value + (inner[name] - sent[name]) for name, value in outer.items()}
