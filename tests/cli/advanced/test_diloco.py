"""`muster diloco status` of a folder that is something else's."""

import json
from pathlib import Path

from tests.cli.muster import Muster


def test_the_home_of_something_else_is_named(muster: Muster, tmp_path: Path) -> None:
    """As a swarm's member keeps a status of the same name."""
    (tmp_path / "status.json").write_text(json.dumps({"round": 3}))
    assert "is the home of no worker" in muster.refused("diloco", "status", "--home", tmp_path)
