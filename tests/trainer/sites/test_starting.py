"""What people see of a site, or a keeper, before it takes part, and that it can be stopped meanwhile."""

import json
import threading
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from benchmarks.site_letters import LetterTable
from cli.main import app
from protocol.errors import MusterError
from protocol.waits import wait_for
from tests.trainer.sites.world import SITES, TRUSTED, MemoryBucket, SitesWorld, make_run
from trainer.sites.exchange import SiteExchange
from trainer.sites.main import SiteDaemon
from trainer.sites.site import Site


def test_a_site_that_waits_for_its_keeper_says_so(tmp_path: Path) -> None:
    run = make_run(2, "lonely", admission=TRUSTED, window_seconds=1000)
    site = Site(SiteExchange(MemoryBucket(), run), SITES[0], LetterTable(), tmp_path)
    config: Any = SimpleNamespace(home=tmp_path, poll_seconds=0.1, steps=0)
    daemon, ended = SiteDaemon(site, config, ExitStack()), list[BaseException]()

    def work() -> None:
        try:
            daemon.run()
        except MusterError as error:
            ended.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    try:

        def shown() -> Any:
            path = tmp_path / "status.json"
            found = json.loads(path.read_bytes()) if path.is_file() else {"waits": []}
            waits = [one["what"] for one in found["waits"]]
            return found if "the log of lonely to begin" in waits else None

        found = wait_for("the site's status", shown, 60)
        assert (found["phase"], found["step"], found["members"]) == ("starting", 0, [])
        told = CliRunner().invoke(app, ["site", "status", "--home", str(tmp_path)])
        assert (told.exit_code, "the log of lonely to begin" in told.output) == (0, True)
    finally:
        daemon.stop()
        thread.join(60)
    assert "stopped while waiting" in str(ended[0])


def test_a_site_that_catches_up_can_be_stopped(tmp_path: Path) -> None:
    run = make_run(2, "long-ago", admission=TRUSTED, training_seconds=1000, state_every=1000)
    world = SitesWorld(MemoryBucket(), run, tmp_path)
    world.start(0)
    world.until(4)
    late = Site(SiteExchange(world.bucket, run), SITES[1], LetterTable(), tmp_path / "late")
    asked: list[str] = []

    def stopped() -> bool:
        asked.append(late.status()["phase"])
        return len(asked) == 2

    with pytest.raises(MusterError, match="catching up, at outer step 2"):
        late.start(stopped)
    assert asked == ["starting"] * 2
    late.start()
    assert late.state.digest == world.keeper.state.digest


def test_a_keeper_has_a_status_before_it_has_read_the_log(tmp_path: Path) -> None:
    world = SitesWorld(MemoryBucket(), make_run(1, "fresh", admission=TRUSTED), tmp_path)
    before = type(world.keeper)(world.keeper.exchange, SITES[0], world.keeper.state, tmp_path / "other")
    assert (before.status()["phase"], before.status()["items"]) == ("starting", None)
    assert before.status().keys() == world.keeper.status().keys()
