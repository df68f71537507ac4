"""A relay's configuration, from nothing but the URL of the pool's service."""

import json
from pathlib import Path
from typing import Any

from cli.access import ask_access, check_access
from cli.session import open_session
from protocol.errors import ConfigError
from protocol.files import explained, user_cache, write_atomic
from storage.relay.server import ServeWeights


def relay_config(
    url: str,
    home: Path | None,
    serve: dict[str, Any],
    key: tuple[Path | None, Path | None],
    rpc: str | None,
    allow_private: bool,
) -> Path:
    """Write it and return where. `serve`: fields of ServeWeights; `key`: the key file that signs announcements, and the
    file with its password. Raises ConfigError, UnreachableError, and IntegrityError if the chain does not bear out what
    the service says."""
    keystore, password_file = key
    if serve["public_url"] and keystore is None:
        raise ConfigError("an announcement needs a signature", "pass --keystore, or leave --public-url out")
    serve["public_url"] = ServeWeights(public_url=serve["public_url"]).public_url if serve["public_url"] else ""
    access = ask_access(url, rpc)
    home = home or user_cache("relay") / f"{access.deployment.chain_id}-{access.pool}"
    with explained(f"make {home}", "pass another --home"):
        home.mkdir(parents=True, exist_ok=True)
    access.save_deployment(home / "deployment.json")
    session = open_session(home / "deployment.json", ",".join(access.rpc))
    check_access(access, session.state())
    session.client.close()
    values: dict[str, Any] = {
        "home": str(home),
        "cache": str(home),
        "deployment": str(home / "deployment.json"),
        "rpc": list(access.rpc),
        "pool": access.pool,
        "orchestrator": access.url,
        "allow_private_sources": allow_private,
        "serve_weights": serve,
    }
    if keystore is not None:
        values["key"] = {"keystore": str(keystore), "password_file": str(password_file) if password_file else None}
    path = home / "relay.json"
    with explained(f"write {path}", "pass another --home"):
        write_atomic(path, json.dumps(values, indent=2).encode() + b"\n")
    return path
