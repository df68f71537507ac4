"""What a page shows, by its own script run under Node (tests/orchestrator/dom.mjs): fast, and no browser is needed."""

import json
import subprocess
from dataclasses import dataclass
from html.parser import HTMLParser
from pathlib import Path


class Tags(HTMLParser):
    """The tags of a document with their attributes, and the texts of its scripts."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.seen: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        if self.get_starttag_text() and self.seen[-1][0] == "script" and data.strip():
            self.scripts.append(data)

    @property
    def names(self) -> set[str]:
        return {tag for tag, _ in self.seen}


@dataclass(frozen=True)
class Shown:
    """The document's title, the HTML of what its sections show, and the results of the calls as text."""

    title: str
    page: str
    values: list[str]


def shown(document: str, *calls: str) -> Shown:
    """Run the script of an HTML document that embeds a run; `calls` are expressions evaluated in its scope."""
    run, script = Tags(document).scripts
    given = json.dumps({"script": script, "run": run, "calls": calls})
    node = ["node", str(Path(__file__).parent / "dom.mjs")]
    done = subprocess.run(node, input=given, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return Shown(**json.loads(done.stdout))
