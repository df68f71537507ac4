"""The work of a file of a pool that no chain has."""

from protocol.identity import PoolId, WorkId
from protocol.seeds import Work

POOLS, NODE = "0x" + "22" * 20, "0x" + "11" * 20


def work_of(counter: int, node: str = NODE) -> Work:
    return Work(WorkId(PoolId(31337, POOLS, 1), node, 3, counter), b"\x07" * 32, b"\x08" * 32)
