"""An honest header to start from."""

from typing import Any

from protocol.identity import PoolId, WorkId
from protocol.rollout_file.rows import RolloutHeader
from protocol.seeds import Work


def header(**changes: Any) -> RolloutHeader:
    fields: dict[str, Any] = {"chain_id": 31337, "pools": "0x" + "11" * 20, "pool": 1, "node": "0x" + "ab" * 20}
    fields |= {"step": 3, "counter": 4, "step_seed": b"s" * 32, "manifest": b"m" * 32}
    fields |= {"engine": "transformers 5.19.0", "dtype": "float32", "device": "cpu", **changes}
    pool = PoolId(*(fields.pop(name) for name in ("chain_id", "pools", "pool")))
    work = WorkId(pool, *(fields.pop(name) for name in ("node", "step", "counter")))
    return RolloutHeader(Work(work, fields.pop("step_seed"), fields.pop("manifest")), **fields)
