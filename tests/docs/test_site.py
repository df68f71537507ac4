"""The documentation site: it builds strictly, and a real browser reads, searches and follows it."""

import functools
import json
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from mkdocs.exceptions import PluginError
from playwright.sync_api import Request, sync_playwright

from protocol.api import endpoints
from protocol.api.endpoints import Get, Post
from runtime.entry import Exit
from tests.cli.test_commands import ALL
from tools import docs_hook
from tools.structure import ROOT

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]
ARGUMENTS += ["--disable-sync", "--no-first-run"]


class QuietHandler(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built site. `--strict` makes a broken link, a missing page or a missing figure an error."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=200, check=False)
    assert built.returncode == 0, built.stdout + built.stderr
    return folder


@pytest.fixture(scope="module")
def address(site: Path) -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(QuietHandler, directory=str(site)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()


def test_every_visible_command_is_in_the_reference(site: Path) -> None:
    page = (site / "reference" / "cli.html").read_text()
    assert len(ALL) > 30
    assert [name for name in ALL if f"<code>muster {name}</code>" not in page] == []
    assert [code for code in Exit if code.meaning.partition(":")[0] not in page] == []


def test_every_route_of_the_service_is_in_the_reference() -> None:
    paths = [endpoint.path for endpoint in vars(endpoints).values() if isinstance(endpoint, Get | Post)]
    assert len(paths) > 20
    page = docs_hook.api_page()
    assert [path for path in paths if f"`{path}`" not in page] == []


def test_a_figure_comes_from_its_results_file() -> None:
    measured = json.loads((docs_hook.RESULTS / "trainer.json").read_text())["tokens_ratio"]
    assert docs_hook.figure("trainer", "tokens_ratio", ".1f", source="a.md") == f"{measured:.1f}"


@pytest.mark.parametrize(("name", "path"), [("trainer", "no/such"), ("no-such-file", "a"), ("recipe", "runs/9999")])
def test_a_missing_figure_fails_the_build(name: str, path: str) -> None:
    with pytest.raises(PluginError, match=r"a\.md: no figure"):
        docs_hook.figure(name, path, None, source="a.md")


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine")
def test_a_browser_reads_every_page_and_finds_words(site: Path, address: str) -> None:
    pages = sorted(path.relative_to(site).as_posix() for path in site.rglob("*.html") if path.name != "404.html")
    assert len(pages) > 40
    complaints: list[str] = []

    def note_failed_request(request: Request) -> None:
        # Going on to the next page aborts what the last one still loads.
        if request.failure != "net::ERR_ABORTED":
            complaints.append(request.url)

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        page = browser.new_page()
        page.on("pageerror", lambda error: complaints.append(f"{page.url}: {error}"))
        page.on("requestfailed", note_failed_request)
        for name in pages:
            answer = page.goto(f"{address}/{name}", wait_until="domcontentloaded")
            assert answer is not None
            assert answer.ok
            assert page.locator("h1").first.inner_text()
        page.goto(f"{address}/index.html")
        page.locator("input[name=query]").fill("committee")
        page.locator(".md-search-result__item a").first.wait_for(timeout=120_000)
        found = page.locator(".md-search-result__item a").first.get_attribute("href") or ""
        browser.close()
    assert found.startswith(address)
    assert complaints == []
