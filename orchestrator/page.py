"""The pages, from the files in `static/`, each with the policy that lets nothing else load or run.

The page that shows a run is one document either way: live it asks the service again and again, as a report the run is
embedded in it.
"""

import base64
import hashlib
import json
from functools import lru_cache
from pathlib import Path
from string import Template
from typing import Any

from jinja2 import Environment, FileSystemLoader

from orchestrator.summary import RunSummary
from protocol.api.run import RunRecord

STATIC = Path(__file__).parent / "static"
SCRIPTS = ("dom.js", "charts.js", "sections.js", "page.js")
_TEMPLATES = Environment(loader=FileSystemLoader(STATIC), autoescape=True)
_NO_FORMS = "base-uri 'none'; form-action 'none'"


@lru_cache(maxsize=1)
def live_page() -> tuple[str, str]:
    """The dashboard and its Content-Security-Policy, which lets it ask its own service and nobody else."""
    policy = _policy("connect-src 'self'")
    return _page("null", policy), policy + "; frame-ancestors 'none'"


def report_page(summary: RunSummary | None, record: RunRecord) -> str:
    """The report of a run, readable offline; `summary` was built from `record`, or is None where nobody summed up."""
    parts = {"summary": summary and summary.model_dump(mode="json"), "record": record.model_dump(mode="json")}
    run = json.dumps(parts, allow_nan=False)
    # Only "<" can end a script element or begin a comment in it; everything beyond ASCII is escaped by `dumps`.
    return _page(run.replace("<", "\\u003c"), _policy("connect-src 'none'"))


def interface_page(document: dict[str, Any]) -> tuple[str, str]:
    """An OpenAPI document for people, and the page's Content-Security-Policy: nothing in it runs or loads anything.
    FastAPI's own page loads its scripts from a stranger's server."""
    page = _TEMPLATES.get_template("docs.html").render(document)
    return page, f"default-src 'none'; {_NO_FORMS}; frame-ancestors 'none'"


def _page(run: str, policy: str) -> str:
    page = Template((STATIC / "page.html").read_text(encoding="utf-8"))
    return page.substitute(policy=policy, style=_style(), script=script(), run=run)


def script() -> str:
    """All of the page's own script: one module."""
    return "".join((STATIC / name).read_text(encoding="utf-8") for name in SCRIPTS)


def _style() -> str:
    return (STATIC / "page.css").read_text(encoding="utf-8")


def _policy(connect: str) -> str:
    """Names the page's own script and style by their hashes."""
    hashes = [base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in (script(), _style())]
    allowed = f"script-src 'sha256-{hashes[0]}'; style-src 'sha256-{hashes[1]}'; {connect}"
    return f"default-src 'none'; {allowed}; {_NO_FORMS}"
