"""A pool's terms as somebody reads them before taking part, with what others earned there lately."""

import statistics
from collections import Counter

from chain.indexer.records import Pool
from chain.indexer.state import State
from cli.output import fields, seconds
from protocol.amounts import show_tokens
from protocol.config import PoolConfig
from protocol.errors import printable

_HOUR = 3600


def terms_for_node(state: State, pool: Pool, config: PoolConfig, stake: int, now: int) -> str:
    """What a node operator agrees to; `stake` in base units, `now` in chain time."""
    terms, shape = pool.terms, config.work
    most = shape.rows * shape.max_new_tokens * terms.rate
    return fields(
        {
            f"pool {pool.pool}": printable(config.name),
            "model": printable(f"{config.model.source}, licence {config.model.license}, {config.model.dtype}"),
            "environments": printable(config.environment_names),
            "pay": f"{show_tokens(terms.rate)} tokens per verified output token, at most {show_tokens(most)} per file",
            "earnings": earnings(state, pool, now),
            "paid": f"{seconds(terms.challengeWindow)} after a file was accepted",
            "stake": f"{show_tokens(stake)} tokens; it unlocks {seconds(pool.unbonding)} after leaving",
            "at risk": "the whole stake, if a file is found to be forged; honest work in the pool's dtype is safe",
            "configuration": pool.config_hash.hex(),
        }
    )


def earnings(state: State, pool: Pool, now: int) -> str:
    """What the nodes that worked in the last hour earned in it, the median of them."""
    units: Counter[str] = Counter()
    for file in state.accepted(pool.pool):
        if file.decided_time > now - _HOUR:
            units[file.node] += file.units
    if not units:
        return "unknown: nobody's work was accepted here in the last hour"
    since = max(now - _HOUR, pool.steps[0].time if pool.steps else now - _HOUR)
    hourly = statistics.median(units.values()) * pool.terms.rate * _HOUR // max(1, now - since)
    return f"{show_tokens(int(hourly))} tokens an hour, by the last hour of {len(units)} working nodes (median)"
