"""A pool's published policy steps, read from the contract's events alone: for who does not follow the whole suite."""

from chain import abi
from chain.contracts.pools import Pools
from chain.events import Event
from chain.jsonrpc import RpcError
from chain.logs import accepted, decode_logs
from protocol.errors import MusterError, UnreachableError

_LEAST, _SHRINK = 16, 8
"""Blocks that any endpoint gives logs of at once, and by what fewer are asked for after a refusal."""


def published_manifests(pools: Pools, pool: int) -> list[bytes]:
    """The digest of each published step's manifest, from policy step 0 on. Raises UnreachableError, MusterError where
    the endpoint gives no logs."""
    head, first = pools.client.head().number, pools.deployment.start_block
    found, span = dict[int, bytes](), max(1, head - first + 1)
    while first <= head:
        last = min(first + span - 1, head)
        events = _events(pools, pool, first, last)
        if events is None:
            if span <= _LEAST:
                raise MusterError("the chain's endpoint gives no logs of the pool's steps", "ask another endpoint")
            span = max(_LEAST, span // _SHRINK)
            continue
        found |= {event.args["step"]: bytes(event.args["manifestHash"]) for event in events}
        first = last + 1
    if sorted(found) != list(range(len(found))):
        raise UnreachableError("the chain's endpoint leaves out steps of the pool", "ask another endpoint")
    return [found[step] for step in range(len(found))]


def _events(pools: Pools, pool: int, first: int, last: int) -> list[Event] | None:
    """The pool's StepPublished of blocks `first` to `last`; None where the endpoint refuses so many."""
    kinds = abi.load(pools.name).events
    topic = next(topic for topic, kind in kinds.items() if kind.name == "StepPublished")
    query = {
        "address": pools.address, "fromBlock": hex(first), "toBlock": hex(last),
        "topics": ["0x" + topic.hex(), f"0x{pool:064x}"],
    }  # fmt: skip
    end = pools.client.block(last)
    answer = pools.client.batch([("eth_getLogs", [query])])[0]
    if isinstance(answer, RpcError) or end is None:
        return None
    events = decode_logs(accepted(answer, first, last, end.hash), pools.deployment)
    return [event for event in events if event.key == (pools.name, "StepPublished") and event.args["pool"] == pool]
