"""The HTML pages, from the files in `static/`, each with a policy that lets nothing else load or run. The dashboard is
one document: live, it asks the service; as a report, the run is embedded in it."""

import base64
import gzip
import hashlib
import json
from functools import lru_cache
from pathlib import Path
from string import Template
from typing import Any

from jinja2 import Environment, FileSystemLoader
from pydantic import BaseModel

from protocol.errors import ConfigError

STATIC = Path(__file__).parent / "static"
STYLES = ("base.css", "parts.css")
SCRIPTS = ("library.js", "pages.js")
_TEMPLATES = Environment(loader=FileSystemLoader(STATIC), autoescape=True)
_NO_FORMS = "base-uri 'none'; form-action 'none'"


@lru_cache(maxsize=1)
def live_page() -> tuple[bytes, str]:
    """Return the dashboard (compressed by gzip) and its policy, which lets it connect to its own service only."""
    policy = _policy("connect-src 'self'")
    return gzip.compress(_page("null", policy).encode(), mtime=0), policy + "; frame-ancestors 'none'"


def report_page(documents: BaseModel) -> str:
    """Return the report of a run, readable offline."""
    run = json.dumps(documents.model_dump(mode="json"), allow_nan=False)
    # Only "<" can end a script element or begin a comment in it; everything beyond ASCII is escaped by `dumps`.
    return _page(run.replace("<", "\\u003c"), _policy("connect-src 'none'"))


def interface_page(document: dict[str, Any]) -> tuple[str, str]:
    """Return an OpenAPI document for people, and the page's policy. FastAPI's own page loads foreign scripts."""
    page = _TEMPLATES.get_template("docs.html").render(document)
    return page, f"default-src 'none'; {_NO_FORMS}; frame-ancestors 'none'"


def _page(run: str, policy: str) -> str:
    page = Template((STATIC / "page.html").read_text(encoding="utf-8"))
    parts = {"policy": policy, "style": style(), "library": library(), "script": script(), "run": run}
    return page.substitute(parts)


@lru_cache(maxsize=1)
def script() -> str:
    """Return the page's own script: one text, for a report opened from a disk may not load modules."""
    return "\n".join((STATIC / name).read_text(encoding="utf-8") for name in SCRIPTS)


def library() -> str:
    """Return uPlot, which draws the charts."""
    return _vendored("uplot/dist/uPlot.iife.min.js")


@lru_cache(maxsize=1)
def style() -> str:
    own = "".join((STATIC / name).read_text(encoding="utf-8") for name in STYLES)
    return _vendored("uplot/dist/uPlot.min.css") + own


def _vendored(path: str) -> str:
    """Return a file of an npm package: from where `make setup` copied it, else from `node_modules`."""
    folders = [STATIC / "vendor", *(folder / "node_modules" for folder in STATIC.parents)]
    file = next((folder / path for folder in folders if (folder / path).is_file()), None)
    if file is None:
        raise ConfigError(f"the npm package file {path} is missing", "run `make setup`")
    return file.read_text(encoding="utf-8")


def _policy(connect: str) -> str:
    digests = (hashlib.sha256(text.encode()).digest() for text in (library(), script(), style()))
    hashes = [f"'sha256-{base64.b64encode(digest).decode()}'" for digest in digests]
    allowed = f"script-src {hashes[0]} {hashes[1]}; style-src {hashes[2]}; {connect}"
    return f"default-src 'none'; {allowed}; {_NO_FORMS}"
