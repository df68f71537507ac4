"""The suite's ABIs (contracts/abi/*.json): encoding of calls, decoding of answers, logs and errors.

Values: integers, checksum addresses, bytes, booleans, strings, tuples and lists; structs are tuples going in and dicts
coming out.
"""

import hashlib
import json
from dataclasses import dataclass, field
from functools import cache, lru_cache
from typing import Any

from eth_abi.abi import encode
from eth_abi.codec import ABIDecoder
from eth_abi.decoding import StringDecoder
from eth_abi.exceptions import DecodingError, EncodingError
from eth_abi.registry import registry
from eth_utils.address import to_checksum_address
from eth_utils.crypto import keccak

from chain.resources import abi_folder
from protocol.errors import ConfigError

CONTRACTS = ("MusterToken", "Params", "Stakes", "Seats", "Pools", "Court", "Juries", "Appeals", "Canaries")
"""In the order of their deployment."""

Json = dict[str, Any]


def _lenient() -> ABIDecoder:
    """A decoder that never fails on text: contracts emit what strangers pass as `string` unread, and an event that no
    program can decode would stop every program that follows the chain."""
    own = registry.copy()  # type: ignore[no-untyped-call]
    own.unregister_decoder("string")
    text = StringDecoder(handle_string_errors="replace")  # type: ignore[no-untyped-call]
    own.register_decoder("string", text)
    return ABIDecoder(own)


_DECODER = _lenient()


@dataclass(frozen=True)
class Function:
    """A function of a contract; `outputs` and `inputs` are ABI parameter descriptions."""

    contract: str
    name: str
    inputs: tuple[Json, ...] = field(hash=False)
    outputs: tuple[Json, ...] = field(hash=False)
    selector: bytes = b""

    def encode(self, *args: Any) -> bytes:
        """Call data. Raises ValueError naming the function when an argument does not fit its type."""
        if len(args) != len(self.inputs):
            raise ValueError(f"{self.contract}.{self.name} takes {len(self.inputs)} arguments, not {len(args)}")
        try:
            return self.selector + encode([canonical_type(i) for i in self.inputs], args)
        except (EncodingError, TypeError, OverflowError) as error:
            raise ValueError(f"{self.contract}.{self.name}: {error}") from None

    def decode(self, data: bytes) -> Any:
        """The returned value, or a tuple of them when there are several; None when there is none."""
        values = _decode(self.outputs, data, f"{self.contract}.{self.name}")
        if not self.outputs:
            return None
        return values[0] if len(values) == 1 else values


@dataclass(frozen=True)
class EventType:
    """An event of a contract; `topic` is its first topic."""

    contract: str
    name: str
    inputs: tuple[Json, ...] = field(hash=False)
    topic: bytes = b""

    def decode(self, topics: list[bytes], data: bytes) -> Json:
        """Arguments by name."""
        indexed = tuple(i for i in self.inputs if i["indexed"])
        plain = tuple(i for i in self.inputs if not i["indexed"])
        where = f"{self.contract}.{self.name}"
        values = dict(zip((i["name"] for i in plain), _decode(plain, data, where), strict=True))
        # Indexed parameters of this suite are static words, so the topics decode like one tuple.
        words = _decode(indexed, b"".join(topics[1:]), where)
        return values | dict(zip((i["name"] for i in indexed), words, strict=True))


@dataclass(frozen=True)
class ErrorType:
    """A custom error."""

    contract: str
    name: str
    inputs: tuple[Json, ...] = field(hash=False)

    def decode(self, data: bytes) -> Json:
        """Arguments by name; `data` without the selector."""
        values = _decode(self.inputs, data, self.name)
        return {i["name"] or str(n): v for n, (i, v) in enumerate(zip(self.inputs, values, strict=True))}


@dataclass(frozen=True)
class Abi:
    """One contract's ABI. `sha256` is that of the committed file's bytes."""

    contract: str
    sha256: str
    functions: dict[str, Function] = field(hash=False)
    events: dict[bytes, EventType] = field(hash=False)
    errors: dict[bytes, ErrorType] = field(hash=False)

    def __getitem__(self, function: str) -> Function:
        try:
            return self.functions[function]
        except KeyError:
            raise ConfigError(
                f"{self.contract} has no function {function}", "update the ABIs: make contracts"
            ) from None


@cache
def load(contract: str) -> Abi:
    """The ABI of one contract of the suite. Raises ConfigError when its file is missing or damaged."""
    path = abi_folder() / f"{contract}.json"
    try:
        data = path.read_bytes()
        entries = json.loads(data)
        return parse(contract, entries, hashlib.sha256(data).hexdigest())
    except OSError as error:
        raise ConfigError(f"cannot read the ABI {path}: {error.strerror}", "run make contracts") from None
    except (ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"the ABI {path} is damaged: {error}", "run make contracts") from None


def parse(contract: str, entries: list[Json], sha256: str = "") -> Abi:
    """An ABI from its JSON entries."""
    functions: dict[str, Function] = {}
    events: dict[bytes, EventType] = {}
    errors: dict[bytes, ErrorType] = {}
    for entry in entries:
        kind, name, inputs = entry["type"], entry.get("name", ""), tuple(entry.get("inputs", ()))
        digest = keccak(text=f"{name}({','.join(canonical_type(i) for i in inputs)})")
        if kind == "function":
            functions[name] = Function(contract, name, inputs, tuple(entry["outputs"]), digest[:4])
        elif kind == "event" and not entry.get("anonymous"):
            events[digest] = EventType(contract, name, inputs, digest)
        elif kind == "error":
            errors[digest[:4]] = ErrorType(contract, name, inputs)
    return Abi(contract, sha256, functions, events, errors)


@cache
def all_errors() -> dict[bytes, ErrorType]:
    """Custom errors of all contracts by selector; a call may revert with an error of a contract further down."""
    return {selector: error for name in CONTRACTS for selector, error in load(name).errors.items()}


def canonical_type(parameter: Json) -> str:
    """The type as it enters a signature: structs spelt out."""
    kind = str(parameter["type"])
    if not kind.startswith("tuple"):
        return kind
    return f"({','.join(canonical_type(c) for c in parameter['components'])}){kind[5:]}"


def _decode(parameters: tuple[Json, ...], data: bytes, where: str) -> tuple[Any, ...]:
    try:
        values = _DECODER.decode([canonical_type(p) for p in parameters], data)
    except (DecodingError, OverflowError, ValueError) as error:
        raise ConfigError(
            f"{where} does not decode ({error})", "the contract's ABI differs from this version's: check the deployment"
        ) from None
    return tuple(_nice(p, v) for p, v in zip(parameters, values, strict=True))


def _nice(parameter: Json, value: Any) -> Any:
    kind = str(parameter["type"])
    if kind.endswith("]"):
        inner = {**parameter, "type": kind[: kind.rindex("[")]}
        return [_nice(inner, v) for v in value]
    if kind == "tuple":
        return {c["name"]: _nice(c, v) for c, v in zip(parameter["components"], value, strict=True)}
    return checksum(value) if kind == "address" else value


@lru_cache(maxsize=65_536)
def checksum(address: str) -> str:
    """Checksum form of a hex address; remembered, because it costs a hash and the same addresses return for ever."""
    return str(to_checksum_address(address))
