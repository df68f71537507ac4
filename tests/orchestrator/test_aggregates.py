"""Aggregates updated from state to state equal those of a first look at every file."""

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from chain.indexer.projection import Projection
from chain.indexer.records import FileNumbers
from orchestrator.ledger import escrow
from orchestrator.scheduling.aggregates import ConsumedFiles, FileAggregates
from protocol.verdict import Code
from tests.orchestrator.chain import NODE, ScriptedChain, replay, started

OUTCOMES = (Code.ACCEPT, Code.UNSURE, Code.MALFORMED, Code.UNAVAILABLE, Code.REJECT_WEIGHTS, Code.VOID)
codes = st.sampled_from([int(one) for one in OUTCOMES])
acts = st.one_of(
    st.tuples(st.just("submit"), st.integers(1, 500)),
    st.tuples(st.just("settle"), codes),
    st.tuples(st.just("finalize"), codes),
    st.tuples(st.just("rewind"), st.integers(1, 3)),
    st.tuples(st.just("train"), st.integers(0, 5)),
)


def perform(chain: ScriptedChain, act: str, given: int, told: list[int | None]) -> None:
    """`told`: for every event so far, the file that it submitted."""
    files = [one for one in told if one is not None]
    if act == "submit":
        told.append(chain.submit(NODE, len(files), units=given))
    elif act == "rewind" and len(told) >= given:
        chain.rewind(given)
        del told[-given:]
        chain.sequence = sum(one is not None for one in told)
    elif act in ("settle", "finalize") and files:
        file = 1 << 32 | files[-1 - given % len(files)]
        if act == "settle":
            chain.settled(file & 0xFFFFFFFF, given, 2000)
        else:
            chain.emit("Pools", "FileFinalized", file=file, code=given, slashed=0)
        told.append(None)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(acts, st.booleans()), max_size=40))
def test_updated_aggregates_equal_new_ones(script: list[tuple[tuple[str, int], bool]]) -> None:
    chain = started(NODE)
    chain.create(pool=2)
    projection, kept, consumed = Projection(chain), FileAggregates(1), ConsumedFiles()
    told: list[int | None] = []
    for (act, number), look in script:
        if act == "train":
            consumed = ConsumedFiles(unnamed={number: [1], number + 1: [1]}, newest=1)
        else:
            perform(chain, act, number, told)
        if not look:
            continue
        projection.refresh()
        state, fresh = projection.state, FileAggregates(1)
        kept.update(state, consumed)
        fresh.update(state, consumed)
        for name in ("sums", "accepted", "consumed", "queued"):
            assert getattr(kept, name) == getattr(fresh, name), name
        assert escrow(state, 1, kept.sums) == escrow(state, 1)


def test_other_files_in_the_same_places_are_counted_anew() -> None:
    chain = started(NODE)
    chain.submit(NODE, 0, units=5)
    first = replay(chain.events)
    file = first.submissions[1, 0]
    files = {(2, 7): replace(file, pool=2, sequence=7), (1, 1): replace(file, sequence=1)}
    pools = {1: replace(first.pools[1], sequences=FileNumbers([1]))}
    second = replace(first, generation=1, submissions=files, pools=pools)
    kept, consumed = FileAggregates(1), ConsumedFiles()
    for state in (first, second):
        kept.update(state, consumed)
    assert list(kept.queued) == [1]
