"""The dashboard in a real browser, over a service with a large run."""

import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Self

import pytest
import uvicorn
from fastapi import FastAPI
from playwright.sync_api import Browser, Page, sync_playwright

from protocol.api.run import RunRecord
from protocol.waits import wait_for
from tests.conftest import free_port
from tests.orchestrator.conftest import Desk, finish_run
from tests.orchestrator.crowd import address, serve_crowd

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
NODE, OPERATOR, OWNER = address(1005), address(5001), address(7001)
PAGES = {
    "": "Who has which step",
    "training": "Entropy (nats)",
    "steps": "Held out",
    "steps/1": "As the trainer reported it",
    "nodes": "Heartbeat",
    "nodes?state=dead": "Heartbeat",
    f"nodes/{NODE}": "What it says of itself",
    f"operators/{OPERATOR}": "What unlocks when",
    "files": "Trained in",
    "files?status=rejected": "Trained in",
    "files/0": "Prompts and completions",
    "validators": "Files voted on",
    f"validators/{OWNER}": "Newest votes",
    "disputes": "Penalties, newest first",
    "disputes/0": "Jury of trial 1",
    "money": "Where the money goes",
    "pools": "Pay per million tokens",
    "compare": "In figures",
    "join": "As a node",
    "search?q=1": "Found for 1",
    "nonsense": "To the overview",
}
"""Every page, with words that stand on it."""


SETTLED = """() => {
  const main = document.getElementById("main"), shown = document.documentElement.dataset.shown;
  return shown === location.hash && !main.hasAttribute("aria-busy") && !main.textContent.includes("Reading the pool")
}"""


@dataclass
class Visit:
    """A page of the browser and everything that it complained of."""

    page: Page
    base: str
    complaints: list[str] = field(default_factory=list)

    def open(self, name: str) -> Self:
        """Go to a page of the dashboard and wait until it is there."""
        self.page.goto(f"{self.base}#/{name}")
        self.settled()
        return self

    def settled(self, url: str = "") -> None:
        """Wait until the page is there, of the `url` that a link leads to."""
        if url:
            self.page.wait_for_url(url)
        self.page.wait_for_function(SETTLED)

    def text(self) -> str:
        return self.page.inner_text("#main")

    @property
    def overflow(self) -> int:
        """By how many pixels the document is wider than its window."""
        wide = self.page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        return int(wide)


Opening = Callable[..., Visit]


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    """Not for the whole session: while it is open, no other test of the process can run an event loop of its own."""
    if CHROMIUM is None:
        pytest.skip("there is no chromium on the PATH: apt-get install chromium")
    with sync_playwright() as playwright:
        options = ["--no-sandbox", "--disable-gpu", "--no-proxy-server", "--disable-background-networking"]
        started = playwright.chromium.launch(executable_path=CHROMIUM, args=options)
        yield started
        started.close()


@pytest.fixture
def visit(browser: Browser) -> Iterator[Opening]:
    """visit(base, width, scheme) → a fresh window."""
    contexts = []

    def opening(base: str, width: int = 1280, scheme: str = "light", **options: object) -> Visit:
        context = browser.new_context(
            viewport={"width": width, "height": 844 if width < 500 else 900},
            color_scheme=scheme,  # type: ignore[arg-type]
            **options,  # type: ignore[arg-type]
        )
        contexts.append(context)
        context.set_default_timeout(60_000)
        made = Visit(context.new_page(), base)
        made.page.on("pageerror", lambda error: made.complaints.append(str(error)))
        made.page.on("console", lambda said: made.complaints.append(said.text) if said.type == "error" else None)
        return made

    yield opening
    for context in contexts:
        context.close()


@contextmanager
def served(app: FastAPI) -> Iterator[str]:
    port = free_port()
    server = uvicorn.Server(uvicorn.Config(app, port=port, log_level="warning", ws="none", timeout_graceful_shutdown=1))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    wait_for("the server", lambda: server.started, 30)
    yield f"http://127.0.0.1:{port}/"
    server.should_exit = True
    thread.join(10)


@pytest.fixture
def finished(desk: Desk) -> RunRecord:
    return finish_run(desk)


@pytest.fixture(scope="session")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """1,000 nodes, four policy steps, 4,000 files."""
    desk = serve_crowd(tmp_path_factory.mktemp("crowd"), files=4000)
    with served(desk.app) as base:
        yield base


@pytest.fixture(scope="session")
def hostile_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A run in which everybody wrote the worst that they could wherever they could."""
    desk = serve_crowd(tmp_path_factory.mktemp("evil"), nodes=40, files=1200, evil=True)
    with served(desk.app) as base:
        yield base
