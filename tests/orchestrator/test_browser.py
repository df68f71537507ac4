"""The page in a real browser: it renders, and what strangers wrote stays text."""

import re
import shutil
import subprocess
import threading
from collections.abc import Iterator
from html import unescape
from pathlib import Path

import pytest
import uvicorn

from orchestrator.page import report_page
from orchestrator.status import record
from orchestrator.summary import build_summary
from protocol.verdict import Code
from protocol.waits import wait_for
from tests.conftest import free_port
from tests.orchestrator.chain import CHEAT, NODE, OWNER
from tests.orchestrator.conftest import Desk

CHROMIUM = shutil.which("chromium")
OPTIONS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-proxy-server",
    "--virtual-time-budget=4000",
    "--window-size=1280,1500",
    "--enable-logging=stderr",
]
EVIL = "<img src=x onerror=\"document.title='owned'\">"

pytestmark = [pytest.mark.slow, pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium on the PATH")]


@pytest.fixture
def url(desk: Desk) -> Iterator[str]:
    port = free_port()
    server = uvicorn.Server(uvicorn.Config(desk.app, port=port, log_level="warning", ws="none"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    wait_for("the server", lambda: server.started, 10)
    yield f"http://127.0.0.1:{port}/"
    server.should_exit = True
    thread.join(10)


@pytest.fixture
def evil(desk: Desk) -> Desk:
    """A cheater was slashed, a file is pending, and a node sent markup wherever it could."""
    bad = desk.chain.submit(CHEAT, 0)
    desk.chain.settle(CHEAT, bad, Code.REJECT_SAMPLING)
    desk.chain.finalize(CHEAT, bad, Code.REJECT_SAMPLING, 5000, 3003)
    desk.chain.submit(NODE, 0)
    desk.follow()
    wait = {"what": EVIL, "since": desk.now - 5}
    beat = {"role": "worker", "name": EVIL, "engine": EVIL, "phase": EVIL, "waits": [wait]}
    assert desk.post(NODE, "/v1/heartbeats", beat).status_code == 200
    report = {"step": 1, "metrics": {"reward": 0.5}, "evaluation": desk.evaluation(1, 0.625)}
    assert desk.post(OWNER, "/v1/steps", report).status_code == 200
    return desk


def rendered(url: str) -> str:
    """The page's HTML as it is after its script ran without a complaint."""
    assert CHROMIUM is not None
    done = subprocess.run([CHROMIUM, *OPTIONS, "--dump-dom", url], capture_output=True, text=True, timeout=60)
    assert "Content Security Policy" not in done.stderr
    assert "Uncaught" not in done.stderr
    page = done.stdout
    assert "<img" not in page.split("<main>")[1].split("</main>")[0]
    assert page.count(unescape(EVIL).replace("<", "&lt;").replace(">", "&gt;")) >= 4
    for words in ("reject: sampling", "healthy", "step 1: 0.625", "0.000005"):
        assert words in page
    return page


def test_the_page_renders_and_hostile_names_stay_text(evil: Desk, url: str) -> None:
    page = rendered(url)
    assert "<title>test · muster</title>" in page
    assert re.search(r'id="live"[^>]*>live<', page)


def test_the_report_is_the_same_page_read_from_a_file(evil: Desk, tmp_path: Path) -> None:
    run = record(evil.service)
    report = tmp_path / "report.html"
    report.write_text(report_page(build_summary(run, seed=7, seconds=1, cheaters=[CHEAT.address]), run))
    page = rendered(report.as_uri())
    assert "<title>test: run with seed 7</title>" in page
    assert re.search(r'id="live"[^>]*>report<', page)
    assert "rollouts trained" in page
