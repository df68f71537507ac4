"""The dashboard page: one self-contained document, with the policy that lets nothing else load or run."""

import base64
import hashlib
import re
from functools import lru_cache
from pathlib import Path


@lru_cache(maxsize=1)
def dashboard_page() -> tuple[str, str]:
    """The page and its Content-Security-Policy, which names the hashes of its own script and style only."""
    content = (Path(__file__).parent / "page.html").read_text(encoding="utf-8")
    script = _hash(content, "script")
    style = _hash(content, "style")
    policy = (
        f"default-src 'none'; script-src '{script}'; style-src '{style}'; connect-src 'self'; img-src data:; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    return content, policy


def _hash(content: str, tag: str) -> str:
    found = re.search(rf"<{tag}>(.*?)</{tag}>", content, re.DOTALL)
    assert found is not None
    return "sha256-" + base64.b64encode(hashlib.sha256(found[1].encode()).digest()).decode()
