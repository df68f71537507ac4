"""Three newcomers type exactly the guides' commands on a local network, and are paid."""

from collections.abc import Iterator

import pytest

from benchmarks.journeys import GUIDES, JOURNEYS, MOST, JourneyNetwork, commands, local_network


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Iterator[JourneyNetwork]:
    with local_network(tmp_path_factory.mktemp("journeys")) as made:
        yield made


@pytest.mark.parametrize("name", GUIDES)
def test_a_guide_needs_few_commands(name: str) -> None:
    assert 0 < len(commands(*GUIDES[name])) <= MOST[name]


def test_a_guide_without_such_a_heading_is_an_error() -> None:
    with pytest.raises(LookupError, match="no commands below"):
        commands("guides/base", "## From nothing to nothing")


@pytest.mark.slow
@pytest.mark.e2e
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", JOURNEYS)
def test_a_newcomer_is_paid(name: str, network: JourneyNetwork) -> None:
    assert JOURNEYS[name](network)["commands"] <= MOST[name]
