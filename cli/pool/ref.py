"""How a person names a pool."""

from dataclasses import dataclass

from protocol.errors import ConfigError


@dataclass(frozen=True)
class PoolRef:
    """A pool that a person named: by its number on chain, by the URL of its service, or by both (`3@https://…`)."""

    number: int | None = None
    url: str | None = None

    @classmethod
    def parse(cls, text: "str | PoolRef") -> "PoolRef":
        """Parse a number, a URL or both. Raises ConfigError."""
        from protocol.http.signing import service_url

        if isinstance(text, cls):
            return text
        number, at, url = str(text).strip().partition("@")
        if not number.isdecimal():
            return cls(None, service_url(str(text).strip()))
        if not 0 < int(number) < 1 << 32 or bool(at) != bool(url):
            raise ConfigError(f"--pool {str(text)[:80]!r} is no pool", "write its number, or the URL of its service")
        return cls(int(number), service_url(url) if url else None)

    def __str__(self) -> str:
        return "@".join(part for part in (str(self.number or ""), self.url or "") if part)
