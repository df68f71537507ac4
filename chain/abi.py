"""The suite's ABIs (contracts/abi/*.json): encoding of calls, decoding of answers, logs and errors.

Structs are tuples going in and dicts coming out; addresses are checksum strings. The codec is eth_abi's, for the
reasons in docs/design/architecture.md.
"""

import hashlib
import json
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

from eth_abi.codec import ABICodec
from eth_abi.decoding import StringDecoder
from eth_abi.exceptions import DecodingError, EncodingError
from eth_abi.registry import registry
from eth_utils.abi import collapse_if_tuple
from eth_utils.address import to_checksum_address

from protocol.encoding import keccak
from protocol.errors import ConfigError
from protocol.signing import checked_address

# Not importlib.resources: in a namespace package it also finds a `contracts` folder of wherever Python was started.
_CONTRACTS = Path(__file__).resolve().parents[1] / "contracts"
ABI_FOLDER = _CONTRACTS / "abi"  # the committed ABIs, `<contract>.json`
ARTIFACTS_FOLDER = _CONTRACTS / "out"
"""What the Solidity compiler left, `<contract>.sol/<contract>.json`; absent until `make contracts`."""


SUITE = (
    "MusterToken", "Params", "Stakes", "Seats", "Pools", "Court", "Juries", "Appeals", "Canaries", "NodeChallenges",
)  # fmt: skip
"""The contracts that know one another, in the order of the struct `Suite`."""
CONTRACTS = (*SUITE, "Timelock", "DilocoRuns")  # In the order of their deployment
FOLLOWED = (*SUITE, "Timelock")
"""Whose events every process keeps. Anybody may emit many of a DiLoCo run's, and no pool depends on them."""

Json = dict[str, Any]


def _lenient() -> ABICodec:
    """A codec that never fails on text: contracts emit strangers' `string`s unread, and every process decodes them."""
    own = registry.copy()  # type: ignore[no-untyped-call]
    own.unregister_decoder("string")
    text = StringDecoder(handle_string_errors="replace")  # type: ignore[no-untyped-call]
    own.register_decoder("string", text)
    return ABICodec(own)


_CODEC = _lenient()


class Parameters:
    """Values that travel as one ABI tuple; `where` names them in errors, e.g. `Pools.submit`."""

    def __init__(self, where: str, components: list[Json]) -> None:
        self.where = where
        self.components = components
        self.types = [collapse_if_tuple(component) for component in components]

    def encode(self, values: tuple[Any, ...]) -> bytes:
        """Raises ConfigError when a value does not fit its type."""
        try:
            for component, value in zip(self.components, values, strict=True):
                _check(component, value)
            return _CODEC.encode(self.types, values)
        except (EncodingError, TypeError, ValueError, OverflowError) as error:
            raise ConfigError(f"{self.where}: {error}", "check the arguments") from None

    def decode(self, data: bytes) -> list[Any]:
        """Raises ConfigError for data of other types."""
        try:
            values = _CODEC.decode(self.types, data)
        except (DecodingError, OverflowError, ValueError) as error:
            why = f"{self.where} does not decode ({error})"
            raise ConfigError(why, "the contract's ABI differs from this version's: check the deployment") from None
        return [_nice(component, value) for component, value in zip(self.components, values, strict=True)]

    def named(self, data: bytes) -> Json:
        """Return the decoded values by name, or by index where one has no name."""
        values = enumerate(zip(self.components, self.decode(data), strict=True))
        return {component["name"] or str(position): value for position, (component, value) in values}


@dataclass(frozen=True)
class Function:
    """A function of a contract."""

    contract: str
    name: str
    inputs: Parameters
    outputs: Parameters
    selector: bytes

    def encode(self, *args: Any) -> bytes:
        """Encode a call as call data. Raises ConfigError naming the function when an argument does not fit its type."""
        return self.selector + self.inputs.encode(args)

    def decode(self, data: bytes) -> Any:
        """Decode the returned value, or a tuple of several; None when there is none."""
        values = self.outputs.decode(data)
        return tuple(values) if len(values) > 1 else next(iter(values), None)


@dataclass(frozen=True)
class EventType:
    """An event of a contract; `topic` is its first topic. Indexed parameters of this suite are static words, so the
    further topics decode like one tuple."""

    contract: str
    name: str
    indexed: Parameters
    plain: Parameters
    topic: bytes

    def decode(self, topics: list[bytes], data: bytes) -> Json:
        """Decode the arguments, by name."""
        return self.plain.named(data) | self.indexed.named(b"".join(topics[1:]))


@dataclass(frozen=True)
class Abi:
    """One contract's ABI. `sha256` is that of the committed file's bytes."""

    contract: str
    sha256: str
    functions: dict[str, Function]
    events: dict[bytes, EventType]
    errors: dict[bytes, Parameters]

    def __getitem__(self, function: str) -> Function:
        if function not in self.functions:
            raise ConfigError(f"{self.contract} has no function {function}", "update the ABIs: make contracts")
        return self.functions[function]


@cache
def load(contract: str) -> Abi:
    """Return the ABI of one contract of the suite. Raises ConfigError when its file is missing or damaged."""
    path = ABI_FOLDER / f"{contract}.json"
    try:
        data = path.read_bytes()
        return parse(contract, json.loads(data), hashlib.sha256(data).hexdigest())
    except OSError as error:
        raise ConfigError(f"cannot read the ABI {path}: {error.strerror}", "run make contracts") from None
    except (ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"the ABI {path} is damaged: {error}", "run make contracts") from None


def parse(contract: str, entries: list[Json], sha256: str = "") -> Abi:
    """Parse an ABI from its JSON entries."""
    abi = Abi(contract, sha256, {}, {}, {})
    for entry in entries:
        kind, name, components = entry["type"], entry.get("name", ""), entry.get("inputs", [])
        where = f"{contract}.{name}"
        inputs = Parameters(where, components)
        digest = keccak(f"{name}({','.join(inputs.types)})".encode())
        if kind == "function":
            outputs = Parameters(where, entry["outputs"])
            abi.functions[name] = Function(contract, name, inputs, outputs, digest[:4])
        elif kind == "event" and not entry.get("anonymous"):
            indexed, plain = (
                [component for component in components if component["indexed"] is wanted] for wanted in (True, False)
            )
            abi.events[digest] = EventType(contract, name, Parameters(where, indexed), Parameters(where, plain), digest)
        elif kind == "error":
            abi.errors[digest[:4]] = Parameters(name, components)
    return abi


@cache
def all_errors() -> dict[bytes, Parameters]:
    """Custom errors of all contracts by selector; a call may revert with an error of a contract further down."""
    return {selector: error for name in CONTRACTS for selector, error in load(name).errors.items()}


def _check(component: Json, value: Any) -> None:
    """Raise ValueError unless a value fits its type exactly: eth_abi pads short bytes, and does not say which value of
    several it refuses."""
    kind, name = component["type"], component["name"]
    if kind.endswith("]"):
        for item in value:
            _check({**component, "type": kind[: kind.rindex("[")]}, item)
    elif kind == "tuple":
        for part, item in zip(component["components"], value, strict=True):
            _check(part, item)
    elif kind == "address":
        checked_address(value)
    elif kind.startswith("uint"):
        most = (1 << int(kind[4:])) - 1
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= most:
            raise ValueError(f"{name} is {value!r}, not a number from 0 to {most}")
    elif kind == "bytes32" and (not isinstance(value, bytes) or len(value) != 32):
        raise ValueError(f"{name} is not 32 bytes")


def _nice(component: Json, value: Any) -> Any:
    kind: str = component["type"]
    if kind.endswith("]"):
        inner = {**component, "type": kind[: kind.rindex("[")]}
        return [_nice(inner, item) for item in value]
    if kind == "tuple":
        return {field["name"]: _nice(field, part) for field, part in zip(component["components"], value, strict=True)}
    return checksum(value) if kind == "address" else value


@lru_cache(maxsize=65_536)
def checksum(address: str | bytes) -> str:
    """Return the checksum form of an address; cached, because it costs a hash and the same addresses come back."""
    return str(to_checksum_address(address))
