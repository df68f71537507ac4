"""Raw JSON-RPC logs to events."""

from collections.abc import Iterable, Mapping
from typing import Any

from chain import abi
from chain.deployment import Deployment
from chain.events import Event
from chain.jsonrpc import number
from protocol.errors import ConfigError, UnreachableError


def decode_logs(logs: Iterable[dict[str, Any]], deployment: Deployment, times: Mapping[bytes, int]) -> list[Event]:
    """Events of the suite among `logs`, in their order. Block times come from the log itself where the node gives
    them, else from `times` by block hash (0 when neither knows)."""
    names = {address.lower(): name for address, name in deployment.names().items()}
    events = []
    for log in logs:
        try:
            contract = names.get(log["address"].lower())
            event = _decode(log, contract, times) if contract else None
        except (AttributeError, ConfigError, KeyError, TypeError, ValueError) as error:
            raise UnreachableError(f"the chain's endpoint returns a malformed log ({error})", "check it") from None
        if event is not None:
            events.append(event)
    return events


def _decode(log: dict[str, Any], contract: str, times: Mapping[bytes, int]) -> Event | None:
    topics = [bytes.fromhex(topic[2:]) for topic in log["topics"]]
    kind = abi.load(contract).events.get(topics[0]) if topics else None
    if kind is None:
        return None
    block_hash = bytes.fromhex(log["blockHash"][2:])
    stamp = log.get("blockTimestamp")
    return Event(
        number(log["blockNumber"]),
        block_hash,
        log["transactionHash"],
        number(log["logIndex"]),
        contract,
        kind.name,
        kind.decode(topics, bytes.fromhex(log["data"][2:])),
        number(stamp) if stamp is not None else times.get(block_hash, 0),
    )
