"""A pool with two nodes and a seat, on a chain written by hand."""

import pytest

from tests.orchestrator.chain import CHEAT, NODE, VOTER, ScriptedChain, started


@pytest.fixture
def scripted() -> ScriptedChain:
    return started(NODE, CHEAT, voters=[VOTER])
