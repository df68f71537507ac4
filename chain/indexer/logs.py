"""Raw JSON-RPC logs: which parts of an endpoint's answer count, and the events that they stand for.

A log is stored as it was accepted here, and decoded from the store from then on.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from chain import abi
from chain.deployment import Deployment
from chain.rpc import number
from protocol.errors import ConfigError, UnreachableError


@dataclass(frozen=True)
class Event:
    """`contract` and `name` as in the ABIs, e.g. `Pools`, `WorkSubmitted`; `args` by the ABI's names, as `chain.abi`
    decodes them. `timestamp` is the block's, Unix seconds."""

    block: int
    block_hash: bytes
    tx_hash: str
    log_index: int
    contract: str
    name: str
    args: dict[str, Any] = field(hash=False)
    timestamp: int


@dataclass(frozen=True)
class Batch:
    """What one poll of the follower brought: new `events` in chain order, up to block `head`. `rollback_to`: events
    above this block were withdrawn (None: no reorganisation). `more`: the next poll brings further ones."""

    rollback_to: int | None
    events: list[Event]
    head: int
    more: bool = False


Log = dict[str, Any]
_HEX = re.compile(r"0x(?:[0-9a-fA-F]{2})*")
_LENGTHS = {"address": 42, "blockHash": 66, "transactionHash": 66}
_MOST = 1 << 62


def accepted(answer: Any, first: int, last: int, last_hash: bytes) -> list[Log]:
    """Return the logs of blocks `first` to `last` that an endpoint answered, each reduced to the members in use. Raises
    UnreachableError for what no honest node answers: malformed, unordered, of other blocks, or of another `last`."""
    if not isinstance(answer, list):
        raise _malformed(f"{type(answer).__name__} for logs")
    logs = [_log(log) for log in answer if not (isinstance(log, dict) and log.get("removed"))]
    positions = [place_of(log) for log in logs]
    if positions != sorted(set(positions)):
        raise _malformed("logs twice or out of order")
    for (block, _), log in zip(positions, logs, strict=True):
        if not first <= block <= last or (block == last and bytes.fromhex(log["blockHash"][2:]) != last_hash):
            raise _malformed("logs of other blocks than asked for")
    return logs


def place_of(log: Log) -> tuple[int, int]:
    """Block number, and the log's number in that block."""
    return number(log["blockNumber"]), number(log["logIndex"])


def decode_logs(logs: Iterable[Log], deployment: Deployment) -> list[Event]:
    """Decode the events of the suite among `logs`, in their order. Raises UnreachableError for malformed ones."""
    names = {address.lower(): name for address, name in deployment.names().items()}
    events = []
    for log in logs:
        try:
            contract = names.get(log["address"].lower())
            event = _decode(log, contract) if contract else None
        except (AttributeError, ConfigError, KeyError, TypeError, ValueError) as error:
            raise _malformed(f"a malformed log ({error})") from None
        if event is not None:
            events.append(event)
    return events


def _decode(log: Log, contract: str) -> Event | None:
    topics = [bytes.fromhex(topic[2:]) for topic in log["topics"]]
    kind = abi.load(contract).events.get(topics[0]) if topics else None
    if kind is None:
        return None
    args = kind.decode(topics, bytes.fromhex(log["data"][2:]))
    (block, index), block_hash = place_of(log), bytes.fromhex(log["blockHash"][2:])
    time = number(log["blockTimestamp"]) if log.get("blockTimestamp") is not None else 0
    return Event(block, block_hash, log["transactionHash"], index, contract, kind.name, args, time)


def _log(raw: Any) -> Log:
    try:
        log: Log = {name: raw[name] for name in (*_LENGTHS, "blockNumber", "logIndex", "data")}
        log["topics"] = list(raw["topics"])
        texts = [log["data"], *log["topics"], *(log[name] for name in _LENGTHS)]
        sound = all(_HEX.fullmatch(text) for text in texts) and all(len(log[name]) == n for name, n in _LENGTHS.items())
        stamp = raw.get("blockTimestamp")
        numbers = [*place_of(log), number(stamp) if stamp is not None else 0]
    except (AttributeError, KeyError, TypeError) as error:
        raise _malformed(f"a malformed log ({error})") from None
    if not sound or not all(0 <= part < _MOST for part in numbers):
        raise _malformed("a malformed log")
    return log | ({"blockTimestamp": stamp} if stamp is not None else {})


def _malformed(what: str) -> UnreachableError:
    return UnreachableError(f"the chain's endpoint returns {what}", "check the endpoint")
