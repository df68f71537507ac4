"""kill -9 of a validator's process between any two of its steps: no committed vote is lost or spoken twice, no accepted
file is dropped, and no seat pays for it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.chain.game import begin
from tests.conftest import Deployed
from tests.validator.kill_story import WINDOW, Town, town

JUDGED = {"after fetching", "after keeping files", "before judging", "after keeping ballots"}
COMMITTEE = JUDGED | {
    "after keeping verdicts",
    "after keeping documents",
    "before sending Court.commit",
    "after sending Court.commit",
    "after putting rollouts",
    "before sending Court.announceMirror",
    "after sending Court.announceMirror",
}
JURORS = JUDGED | {"before sending Juries.commit", "after sending Juries.commit"}
# Which seat shows its vote how depends on who else has.
SHOWN = {
    f"{when} {body}.{how}"
    for when in ("before sending", "after sending", "after mined")
    for body in ("Court", "Juries")
    for how in ("commit", "reveal", "revealAndSettle", "vote")
}
MOST = 400


@pytest.fixture
def place(deployed: Deployed, tmp_path: Path) -> Iterator[Town]:
    windows = ("commitWindow", "revealWindow", "juryCommitWindow", "juryRevealWindow", "challengeWindow")
    game = begin(deployed, tmp_path, **dict.fromkeys(windows, WINDOW))
    with town(game, tmp_path) as made:
        yield made


@pytest.mark.timeout(1000)
def test_killed_at_each_of_its_steps_in_one_files_life(place: Town) -> None:
    """More than a dozen deaths, of both processes."""
    deaths = place.story(frozenset(COMMITTEE | SHOWN), frozenset(JURORS | SHOWN))
    assert set(deaths) >= COMMITTEE | JURORS
    assert any("reveal" in name or "vote" in name for name in deaths)


@pytest.mark.slow
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("who", ["committee", "jurors"])
def test_killed_at_every_moment_there_is(who: str, place: Town) -> None:
    """A file's life for each of them, until a process outlives its last."""
    seen: list[str] = []
    for number in range(1, MOST):
        deaths = place.story(**{who: number})
        seen += deaths
        print(number, *deaths, flush=True)
        if not deaths:
            break
    assert len(seen) < MOST - 1
    assert set(seen) >= (COMMITTEE if who == "committee" else JURORS)
