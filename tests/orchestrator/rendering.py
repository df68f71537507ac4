"""What a document holds, without a browser."""

from html.parser import HTMLParser


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
