"""`dataset.json`, which says what an export is of and holds the hashes of its files, and the card that follows."""

import hashlib
import json
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, field_validator

from protocol import signing
from protocol.accounts import LocalAccount
from protocol.api.base import Hex64
from protocol.encoding import Document, canonical_json, parse_document
from protocol.errors import IntegrityError
from protocol.identity import PoolId

DOCUMENT, CARD, CONFIG = "dataset.json", "README.md", "pool.json"
DATA, MANIFESTS, TOKENIZER = "data", "manifests", "tokenizer"
_STRUCT = "Dataset(uint256 pool,bytes32 digest)"
_MAX_FILES = 1 << 16

Count = Annotated[int, Field(ge=0, lt=1 << 53, strict=True)]
Text = Annotated[str, Field(max_length=200, pattern=r"^[^\x00-\x1f\x7f]*$")]


class DataFile(Document):
    """One file of rows, `path` below the export's folder."""

    path: Annotated[str, Field(pattern=r"^data/rollouts-[0-9]{5}\.parquet$")]
    rows: Count
    bytes: Count
    sha256: Hex64


class EnvironmentTotals(Document):
    """Of one environment: rows, different problems, mean task reward, and rows whose task reward is 1."""

    rows: Count
    problems: Count
    task_reward_mean: float
    solved: Count


class Totals(Document):
    """Of all rows: `submissions` are files that nodes submitted; `problems` are different ones; tokens are counted."""

    rows: Count
    submissions: Count
    nodes: Count
    problems: Count
    prompt_tokens: Count
    output_tokens: Count
    task_reward_mean: float
    reward_mean: float
    environments: dict[Text, EnvironmentTotals] = Field(max_length=64)


class AsOf(Document):
    """The block up to which submissions are looked at; `time` is its time, Unix seconds."""

    block: Count
    hash: Hex64
    time: Count


class Licences(Document):
    """Of the data set as its exporter offers it, and of the model as the pool's configuration says; of each
    environment, where it is known."""

    dataset: Text
    model: Text
    environments: dict[Text, Text] = Field(default_factory=dict, max_length=64)


class DatasetDocument(Document):
    """`contracts`: name → address of the suite; `manifests`: policy step of some row → digest of its manifest; `files`:
    in the order of their rows."""

    version: Literal[1] = 1
    name: Text
    chain_id: Count
    genesis: Hex64
    contracts: dict[Text, Annotated[str, Field(pattern=r"^0x[0-9a-fA-F]{40}$")]] = Field(max_length=64)
    pool: Count
    owner: str
    config_hash: Hex64
    as_of: AsOf
    model: Text
    dtype: Text
    licences: Licences
    manifests: dict[Annotated[str, Field(pattern=r"^[0-9]{1,12}$")], Hex64] = Field(max_length=1 << 16)
    totals: Totals
    files: tuple[DataFile, ...] = Field(max_length=_MAX_FILES)
    muster: Text

    @field_validator("owner")
    @classmethod
    def _checksum(cls, value: str) -> str:
        return signing.checked_address(value)

    @property
    def pool_id(self) -> PoolId:
        return PoolId(self.chain_id, self.contracts["Pools"], self.pool)

    @property
    def digest(self) -> bytes:
        """Compute the SHA-256 of the canonical document."""
        return hashlib.sha256(canonical_json(self.model_dump(mode="json"))).digest()


class StoredDataset(Document):
    """What `dataset.json` holds. An unsigned folder may come from anybody; its rows prove themselves either way."""

    dataset: DatasetDocument
    signer: str = ""
    signature: Annotated[str, Field(pattern=r"^(0x[0-9a-f]{130}|)$")] = ""

    @classmethod
    def of(cls, document: DatasetDocument, account: LocalAccount | None) -> Self:
        """Sign a document with `account`, if there is one."""
        if account is None:
            return cls(dataset=document)
        signature = "0x" + signing.sign(account, _signed_digest(document)).hex()
        return cls(dataset=document, signer=str(account.address), signature=signature)

    @classmethod
    def parse(cls, data: bytes, where: str) -> Self:
        """Parse hostile bytes. Raises ConfigError naming the field, IntegrityError for a form that is not canonical or
        a signature that is not its signer's."""
        stored = parse_document(data, cls, where)
        if stored.canonical() != data:
            raise IntegrityError(f"{where} is not canonical JSON", "export again")
        if "Pools" not in stored.dataset.contracts:
            raise IntegrityError(f"{where} names no Pools contract", "export again")
        if bool(stored.signature) != bool(stored.signer):
            raise IntegrityError(f"{where} has a signer or a signature, but not both", "export again")
        if stored.signature:
            try:
                actual = signing.recover(_signed_digest(stored.dataset), bytes.fromhex(stored.signature[2:]))
            except (ValueError, IntegrityError):
                actual = "nobody"
            if actual != stored.signer:
                what = f"{where} is signed by {actual}, not by {stored.signer}"
                raise IntegrityError(what, "get it from its exporter")
        return stored

    def canonical(self) -> bytes:
        return canonical_json(self.model_dump(mode="json"))

    def write(self, folder: Path) -> Self:
        """Write the document and its card into an export's folder."""
        (folder / DOCUMENT).write_bytes(self.canonical())
        (folder / CARD).write_text(card(self.dataset), encoding="utf-8")
        return self


def _signed_digest(document: DatasetDocument) -> bytes:
    return signing.digest(document.pool_id.domain("muster-dataset"), _STRUCT, document.pool, document.digest)


_SIZES = ((1_000, "n<1K"), (10_000, "1K<n<10K"), (100_000, "10K<n<100K"), (1_000_000, "100K<n<1M"))
_TEMPLATE = """\
---
{header}
pretty_name: {title}
size_categories:
- {size}
tags:
- muster
- rollouts
configs:
- config_name: default
  data_files:
  - split: train
    path: data/*.parquet
---

# {name}

{totals.rows} verified rollouts of {model} ({document.dtype}): {totals.problems} different problems, {share} answers \
to each on average, {totals.prompt_tokens} prompt tokens and {totals.output_tokens} output tokens. {totals.nodes} \
nodes generated them in {totals.submissions} files, and for each file a committee drawn by lot checked that it was \
made with these weights, sampled as the protocol says and scored rightly.

The mean task reward is {totals.task_reward_mean:.6f}, the mean reward {totals.reward_mean:.6f}.

| environment | rows | problems | mean task reward | rows with task reward 1 | licence |
|---|---|---|---|---|---|
{table}
## Where it comes from

- pool {document.pool} of the contract `{document.contracts[Pools]}` on chain {document.chain_id}, owned by \
`{document.owner}`
- its configuration, `pool.json`: SHA-256 `{document.config_hash}`
- every submission that was accepted for good at block {document.as_of.block} (`{document.as_of.hash}`)
- policy steps {steps}; their manifests, with the hashes of all weights, are in `manifests/`

## Licences

Data set: {licence}. Model: {model_licence}. Environments: see the table.

## Verify it

`muster dataset verify . --deployment FILE --rpc URL` compares every row with the chain; it needs no trust in whoever \
hands this folder out. docs/guides/pool.md of muster describes the folder.
"""


def card(document: DatasetDocument) -> str:
    """Return `README.md` in the form that Hugging Face reads: YAML, whose texts are JSON strings, and Markdown."""
    totals, licences = document.totals, document.licences
    known = licences.dataset not in ("", "unknown")
    rows = [
        f"| {_plain(name)} | {part.rows} | {part.problems} | {part.task_reward_mean:.6f} | {part.solved} | "
        f"{_plain(licences.environments.get(name, 'unknown'))} |\n"
        for name, part in sorted(totals.environments.items())
    ]
    return _TEMPLATE.format(
        document=document,
        totals=totals,
        header=f"license: {json.dumps(licences.dataset)}" if known else "license: other\nlicense_name: unknown",
        title=json.dumps(document.name),
        size=next((name for most, name in _SIZES if totals.rows < most), "1M<n<10M"),
        name=_plain(document.name),
        model=_plain(document.model),
        share=f"{totals.rows / totals.problems:.2f}" if totals.problems else "0",
        table="".join(rows),
        steps=", ".join(sorted(document.manifests, key=int)) or "none",
        licence=_plain(licences.dataset),
        model_licence=_plain(licences.model),
    )


def _plain(text: str) -> str:
    """Return text that Markdown shows as it is, in a table too."""
    return "".join("\\" + c if c in "\\`*_{}[]<>#|" else c for c in text)
