"""The calibration document: measurements and the thresholds that follow from them, signed by who measured.

It is canonical JSON, its signature EIP-712 over the SHA-256 of the document without it. The domain names no chain: a
calibration is of weights and engines, whatever network a pool is on."""

import hashlib
import json
import math
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import tomlkit
from pydantic import Field

from calibration.bounds import MEASUREMENTS, Design
from calibration.thresholds import Count, PairMeasurements, thresholds
from protocol import signing
from protocol.accounts import LocalAccount
from protocol.api.base import Hex64
from protocol.config import PoolConfig
from protocol.encoding import Document, canonical_json, parse_document, sha256_hex
from protocol.errors import ConfigError, IntegrityError
from protocol.files import explained, file_digests, read_bounded, write_file

_DOMAIN = signing.Domain("muster-calibration", "1", 0, "0x" + "00" * 20)
_STRUCT = "Calibration(bytes32 digest)"
_MAX_BYTES = 64 << 20
_TOLERANCE = 2e-3  # machines differ in the last place of a logarithm, which may round a third digit the other way


class Calibration(Document):
    """Hashes are hex: `pool` is `subject(config)`, `weights` is `weights_hash(folder)`; `time` in Unix seconds;
    `audit_rate` in 1/65536; `seed` is that of the files; `false_reject` per file; `signature` hex or empty."""

    version: Literal[1] = 1
    method: Literal["peaks over threshold, Chernoff"] = "peaks over threshold, Chernoff"
    time: Count
    seed: Annotated[str, Field(max_length=100)]
    pool: Hex64
    weights: Hex64
    problems: Annotated[int, Field(ge=1, le=4096)]
    samples: Annotated[int, Field(ge=1, le=256)]
    audit_rate: Annotated[int, Field(ge=1, le=65536)]
    false_reject: Annotated[float, Field(gt=0, lt=0.5)]
    safety: Annotated[float, Field(ge=1, le=100)]
    pairs: Annotated[tuple[PairMeasurements, ...], Field(min_length=1, max_length=64)]
    thresholds: dict[str, Annotated[float, Field(gt=0)]]
    signer: str
    signature: Annotated[str, Field(pattern=r"^([0-9a-f]{130}|)$")] = ""

    def canonical(self) -> bytes:
        return canonical_json(self.model_dump(mode="json"))

    @property
    def digest(self) -> bytes:
        """What is signed."""
        body = canonical_json(self.model_dump(mode="json", exclude={"signature"}))
        return signing.digest(_DOMAIN, _STRUCT, hashlib.sha256(body).digest())

    def signed(self, account: LocalAccount) -> Self:
        if self.signer != account.address:
            raise ValueError("the document names another signer")
        return self.model_copy(update={"signature": signing.sign(account, self.digest).hex()})

    def computed(self) -> dict[str, float]:
        """Return the thresholds that follow from the document's measurements."""
        design = Design(self.problems, self.samples, self.audit_rate / 65536)
        return thresholds(self.pairs, design, self.false_reject, self.safety)

    def heldout(self) -> tuple[int, int]:
        """Return the number of held-out files, and of pairs of which one was over a threshold."""
        over = sum(any(p.heldout.largest[name] >= self.thresholds[name] for name in MEASUREMENTS) for p in self.pairs)
        return sum(pair.heldout.files for pair in self.pairs), over

    def check(self, signer: str | None = None) -> None:
        """Raise IntegrityError unless the signature is `signer`'s (the named one's if None), the thresholds follow from
        the measurements, and no held-out file was over."""
        signing.check_signer(self.digest, "0x" + self.signature, self.signer, IntegrityError, "the calibration")
        if signer is not None and self.signer != signer:
            raise IntegrityError(f"the calibration is signed by {self.signer}, not by {signer}", "ask the pool's owner")
        wanted = self.computed()
        for name in MEASUREMENTS:
            claimed = self.thresholds.get(name)
            if claimed is None or not math.isclose(claimed, wanted[name], rel_tol=_TOLERANCE):
                what = f"`{name}` is {claimed}, but {wanted[name]} follows from the measurements"
                raise IntegrityError(what, "measure again")
        if set(self.thresholds) != set(MEASUREMENTS):
            raise IntegrityError("the calibration has thresholds that no check knows", "measure again")
        if self.heldout()[1]:
            raise IntegrityError("a held-out honest file is over a threshold", "measure again with more --files")

    @property
    def checks(self) -> dict[str, float]:
        """The fields of `ChecksConfig` that were measured."""
        return {**self.thresholds, "audit_rate": self.audit_rate}

    @classmethod
    def parse(cls, data: bytes, where: str) -> Self:
        """Parse a document whose signature `check` looks at. Raises ConfigError for anything else."""
        return parse_document(data, cls, f"{where} is not a calibration")

    @classmethod
    def load(cls, path: Path) -> Self:
        return cls.parse(read_bounded(path, _MAX_BYTES), str(path))


def subject(config: PoolConfig) -> str:
    """Return the hex SHA-256 of what a calibration depends on: model, environments and work."""
    chosen = config.model_dump(mode="json", include={"model", "environments", "work"})
    return sha256_hex(canonical_json(chosen))


def weights_hash(folder: Path) -> str:
    """Return the hex SHA-256 of the canonical JSON {file name: SHA-256} of a model folder. Raises ConfigError."""
    with explained(f"read {folder}", "name a model folder"):
        return sha256_hex(canonical_json(file_digests(folder)))


def applicable(path: Path, measured: str) -> PoolConfig:
    """Return the pool configuration in a file. Raises ConfigError unless its `subject` is the one that was measured."""
    config = PoolConfig.load(path)
    if subject(config) != measured:
        what = f"{path} has another model, task or work than was measured"
        raise ConfigError(what, "calibrate that pool; its thresholds are unchanged")
    return config


def apply(document: Calibration, path: Path) -> None:
    """Write the thresholds into an applicable pool configuration; comments in TOML stay. Raises ConfigError."""
    config = applicable(path, document.pool)
    changed = config.model_copy(update={"checks": config.checks.model_copy(update=document.checks)})
    if path.suffix == ".toml":
        written = tomlkit.parse(path.read_text(encoding="utf-8"))
        checks: Any = written.setdefault("checks", tomlkit.table())
        checks.update(document.checks)
        text = tomlkit.dumps(written)
    else:
        text = json.dumps(changed.model_dump(mode="json"), indent=2, ensure_ascii=False) + "\n"
    write_file(path, text.encode(), "choose another path")
