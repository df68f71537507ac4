"""A pool's terms as its owner writes them: TOML with amounts in tokens, windows in seconds. See docs/cli.md."""

from pathlib import Path
from typing import Annotated, Any

from pydantic import AliasGenerator, BaseModel, BeforeValidator, ConfigDict, Field
from pydantic.alias_generators import to_camel

from chain.deployment import FOLDER
from chain.indexer.records import Terms
from chain.indexer.state import group_number
from protocol.amounts import parse_tokens
from protocol.encoding import load_document
from protocol.errors import ConfigError


def _grains(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise ValueError('must be a number of tokens in quotes, such as "0.5"')
    try:
        return parse_tokens(str(value))
    except ConfigError as error:
        raise ValueError(error.what) from None


def _group(value: Any) -> int:
    if not isinstance(value, str):
        raise ValueError('must be "own" or the name of a validator group, in quotes')
    try:
        return 0 if value == "own" else group_number(value)
    except ConfigError as error:
        raise ValueError(error.what) from None


SmallAmount = Annotated[int, BeforeValidator(_grains), Field(lt=1 << 32)]
Amount = Annotated[int, BeforeValidator(_grains), Field(lt=1 << 56)]
U8 = Annotated[int, Field(ge=0, lt=1 << 8, strict=True)]
U16 = Annotated[int, Field(ge=0, lt=1 << 16, strict=True)]
U24 = Annotated[int, Field(ge=0, lt=1 << 24, strict=True)]
Seconds = Annotated[int, Field(ge=0, lt=1 << 32, strict=True)]


class TermsFile(BaseModel):
    """Members of `PoolTerms` by their names in snake case; the contract checks them against its bounds. `group`: the
    validator group that judges, `own` for the seats that opted into this one pool."""

    model_config = ConfigDict(extra="forbid", alias_generator=AliasGenerator(serialization_alias=to_camel))

    rate: SmallAmount
    fee: SmallAmount
    jury_fee: SmallAmount
    min_stake: Amount
    leverage: U16
    max_units: U24
    committee: U8 = 3
    jury: U8 = 7
    appeal_jury: U8 = 15
    lane_blocks: U8 = 8
    attest_blocks: U8 = 60
    max_lag: U8 = 2
    audit_rate: U24 = 65536
    draw_blocks: U16 = 1800
    commit_window: Seconds
    reveal_window: Seconds
    challenge_window: Seconds
    appeal_window: Seconds
    jury_commit_window: Seconds
    jury_reveal_window: Seconds
    receipt_window: Seconds
    group: Annotated[int, BeforeValidator(_group)] = 0
    invite_only: Annotated[bool, Field(strict=True)] = False

    def terms(self, config_hash: bytes) -> Terms:
        return Terms.of({**self.model_dump(by_alias=True), "configHash": config_hash})


def load_terms(path: Path, config_hash: bytes) -> Terms:
    """The terms in a TOML file, or those that come with muster for a network of that name, for the pool configuration
    with that SHA-256. Raises ConfigError naming the field."""
    shipped = FOLDER / "terms" / f"{path}.toml"
    path = shipped if path.suffix != ".toml" and shipped.exists() else path
    return load_document(path, TermsFile, toml=True).terms(config_hash)
