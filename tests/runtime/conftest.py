"""A pool with two nodes and a seat, on a chain written by hand."""

import pytest

from tests.orchestrator.chain import CHEAT, NODE, VOTER, ScriptedChain


@pytest.fixture
def scripted() -> ScriptedChain:
    chain = ScriptedChain()
    chain.create()
    chain.seat(VOTER)
    for key in (NODE, CHEAT):
        chain.join(key)
    chain.publish(0)
    return chain
