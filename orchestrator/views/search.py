"""What an address, a hash or a number in the search box names. Pure."""

import re
from collections.abc import Iterator
from itertools import islice

from chain.indexer.records import Pool
from chain.indexer.state import State
from protocol.api.views import HitEntry, Hits

MOST_HITS = 20


def search(state: State, pool: Pool | None, query: str) -> Hits:
    """Nodes, validators, operators and files by the beginning of an address or hash (`0x` and four digits at least);
    files, policy steps and pools by number."""
    text = query.strip()
    found: Iterator[HitEntry] = iter(())
    if pool is not None and re.fullmatch(r"#?[0-9]{1,9}", text):
        found = _by_number(state, pool, int(text.lstrip("#")))
    elif pool is not None and re.fullmatch(r"(0x)?[0-9a-fA-F]{4,64}", text):
        found = _by_digits(state, pool, text.lower().removeprefix("0x"))
    return Hits(query=text, hits=list(islice(found, MOST_HITS)))


def _by_number(state: State, pool: Pool, number: int) -> Iterator[HitEntry]:
    if (pool.pool, number) in state.submissions:
        yield HitEntry(kind="submission", id=str(number), label=f"file {number}")
    if number < len(pool.steps):
        yield HitEntry(kind="step", id=str(number), label=f"policy step {number}")
    if number in state.seats:
        yield HitEntry(kind="validator", id=state.seats[number].owner, label=f"seat {number}")
    if number in state.pools:
        yield HitEntry(kind="pool", id=str(number), label=f"pool {number}")


def _by_digits(state: State, pool: Pool, digits: str) -> Iterator[HitEntry]:
    def begins(text: str) -> bool:
        return text.lower().removeprefix("0x").startswith(digits)

    accounts = [account for (of, _), account in state.accounts.items() if of == pool.pool]
    for account in accounts:
        if begins(account.node):
            yield HitEntry(kind="node", id=account.node, label="node")
    for owner in dict.fromkeys(seat.owner for seat in state.seats.values()):
        if begins(owner):
            yield HitEntry(kind="validator", id=owner, label="owner of seats")
    for seat in state.seats.values():
        if begins(seat.voter) and seat.voter != seat.owner:
            yield HitEntry(kind="validator", id=seat.owner, label=f"votes for seat {seat.seat}")
    for operator in dict.fromkeys(account.operator for account in accounts):
        if begins(operator):
            yield HitEntry(kind="operator", id=operator, label="operator of nodes")
    if begins(pool.owner):
        yield HitEntry(kind="pool", id=str(pool.pool), label=f"owner of pool {pool.pool}")
    if len(digits) >= 8:
        for sequence in reversed(pool.sequences):
            sub = state.submissions[pool.pool, sequence]
            if begins(sub.sha256.hex()) or begins(sub.tx):
                yield HitEntry(kind="submission", id=str(sequence), label=f"file {sequence}")
