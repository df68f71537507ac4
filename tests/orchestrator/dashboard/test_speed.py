"""The first sight of a large run: 1,000 nodes and 100,000 files."""

from pathlib import Path

import pytest

from tests.orchestrator.crowd import serve_crowd
from tests.orchestrator.dashboard.conftest import Opening, served

LOADS = 3
MEASURE = """() => {
  const loaded = [...performance.getEntriesByType("navigation"), ...performance.getEntriesByType("resource")];
  return {bytes: loaded.reduce((sum, one) => sum + one.transferSize, 0),
    paint: performance.getEntriesByName("first-contentful-paint")[0].startTime}
}"""


@pytest.mark.slow
def test_the_first_paint_takes_less_than_a_second_and_half_a_megabyte(tmp_path: Path, visit: Opening) -> None:
    desk = serve_crowd(tmp_path, nodes=1000, files=100_000)
    measured = []
    with served(desk.app) as url:
        for _ in range(LOADS):
            seen = visit(url).open("")
            assert "99 of 200" in seen.text()
            measured.append(seen.page.evaluate(MEASURE))
    print(measured)
    assert max(one["bytes"] for one in measured) < 500_000
    # Other programs on the machine delay some loads; the page itself delays all.
    assert min(one["paint"] for one in measured) < 1000
