"""`muster weights`: fetching a policy step by hand, and serving them to others."""

import json as json_module
import time
from contextlib import closing
from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Option

from cli.options import (
    CacheOption,
    Commands,
    KeystoreOption,
    OwnConfigOption,
    PasswordFileOption,
    PoolOption,
    PoolReading,
    PrivateOption,
    ServiceRpcOption,
)
from cli.output import emit
from cli.profile import find_profile
from protocol.errors import ConfigError
from protocol.files import explained, user_cache, write_file

app = Commands(help="Policy steps: fetch and serve.", no_args_is_help=True)


@app.command("fetch", "muster weights fetch 12 --pool https://pool.example")
def fetch(
    look: PoolReading,
    step: Annotated[int | None, Argument(min=0, help="Policy step; the newest if none is named.")] = None,
    cache: CacheOption = None,
    allow_private_sources: PrivateOption = False,
) -> None:
    """Fetch a policy step by its hash on chain, as deltas or full shards; needs no key, continues what was
    interrupted."""
    from runtime.pool_client import PoolClient
    from runtime.process import EngineConfig

    profile, home = find_profile(None), user_cache("weights-fetch")
    folder = cache or (profile.cache if profile else user_cache("weights"))
    config = look.observer(EngineConfig(), home, folder, allow_private_sources)
    started = time.monotonic()
    with closing(PoolClient(config, None)) as client:
        have = len(client.refresh().pools[config.pool].steps)
        number = have - 1 if step is None else step
        if not 0 <= number < have:
            known = f"steps are 0 to {have - 1}" if have else "it has published none"
            raise ConfigError(f"pool {config.pool} has no policy step {'' if step is None else step}".rstrip(), known)
        folder = client.step_weights(number)
    fetched = {
        "step": number,
        "manifest": folder.name,
        "bytes": sum(path.stat().st_size for path in folder.iterdir()),
        "seconds": round(time.monotonic() - started, 3),
        "folder": str(folder),
    }
    emit(fetched, look.json)


@app.command("serve", "muster weights serve --pool https://pool.example --public-url https://relay.example")
def serve(
    pool: PoolOption = None,
    public_url: Annotated[str, Option(help="Where others reach this relay, to be announced; else it is not.")] = "",
    host: Annotated[str, Option(help="Address to listen on.")] = "0.0.0.0",
    port: Annotated[int, Option(min=1, max=65535, help="Port to listen on.")] = 8790,
    home: Annotated[Path | None, Option(help="Folder of its state and of what it serves.", file_okay=False)] = None,
    keystore: KeystoreOption = None,
    password_file: PasswordFileOption = None,
    rpc: ServiceRpcOption = None,
    allow_private_sources: PrivateOption = False,
    config: OwnConfigOption = None,
) -> None:
    """Relay the pool's weights: fetch, check and serve them, from the moment they begin to come.

    Everything is taken from the pool's service and checked against the chain. The key signs announcements and holds no
    money; it has to belong to a participant of the pool, or to be named by the pool's owner."""
    from runtime.relay import run

    if config is None:
        if pool is None or pool.url is None:
            raise ConfigError("it is not known which pool to serve", "pass --pool URL, the address of its service")
        serve_weights = {"host": host, "port": port, "public_url": public_url}
        key = {"keystore": str(keystore), "password_file": str(password_file) if password_file else None}
        config = _relay_config(pool.url, home, serve_weights, key if keystore else None, rpc, allow_private_sources)
    run(config)


def _relay_config(
    url: str, home: Path | None, serve: dict[str, Any], key: dict[str, Any] | None, rpc: str | None, allow_private: bool
) -> Path:
    """Write a relay's configuration, and return where. Raises ConfigError, UnreachableError, IntegrityError."""
    from cli.session import ask_access, check_access, open_session
    from storage.relay.server import ServeWeights

    if serve["public_url"] and key is None:
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
        **({"key": key} if key else {}),
    }
    path = home / "relay.json"
    write_file(path, json_module.dumps(values, indent=2).encode() + b"\n", "pass another --home")
    return path
