"""One host's process in `benchmarks broadcast`: `python -m benchmarks.support.broadcast_role OPTIONS`, in JSON.

It prints `ready`, waits for a line, does its part, prints {"done": Unix time} if it is a client, and at the next line
{"cpu": seconds since it was ready, of its children too} and ends.
"""

import importlib
import json
import os
import resource
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from protocol.accounts import Account, LocalAccount
from protocol.errors import MusterError
from protocol.files import die_with_parent
from protocol.identity import PoolId
from runtime.server import HttpServer, bound, server_options
from storage.keys import object_key
from storage.relay.cache import RelayCache, RelayFetches
from storage.relay.server import RelayApp, ServeWeights
from storage.sources import MultiSource
from storage.transfers import HttpObjects
from storage.weights.fetch import fetch
from storage.weights.manifest import MAX_STORED_BYTES, ManifestScope, unseal
from storage.weights.publish import make_manifest, prepare, send

PORT = 8000
BEHIND = 8001
LOOK_SECONDS = 0.5


def cpu() -> float:
    both = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(one.ru_utime + one.ru_stime for one in both)


def said(**facts: Any) -> None:
    print(json.dumps(facts), flush=True)


def main(options: dict[str, Any]) -> None:
    part = (theirs if options["system"] == "shardcast" else ours)(options)
    said(ready=True)
    began = cpu()
    sys.stdin.readline()
    part()
    if options["role"] != "relay":
        said(done=time.time())
    sys.stdin.readline()
    said(cpu=cpu() - began)
    os._exit(0)


def theirs(options: dict[str, Any]) -> Callable[[], object]:
    sys.path.insert(0, options["peer"])
    shardcast = importlib.import_module("shardcast")
    folder, role, port = Path(options["folder"]), options["role"], options["port"]
    folder.mkdir(parents=True, exist_ok=True)
    if role != "client":
        (folder / "data1.bin").write_bytes(bytes(1 << 20))
    if role == "origin":
        origin = shardcast.OriginServer(str(folder), port)
        return lambda: origin.broadcast(options["file"], options["shard"])
    if role == "relay":
        relay = shardcast.MiddleNode(options["upstreams"], str(folder), port, check_interval=options["check_seconds"])
        return lambda: relay.port
    client = shardcast.ClientNode(options["upstreams"], str(folder))

    def fetched() -> None:
        while True:
            versions = client.list_available_versions()
            if versions and client.download_version(next(iter(versions)), str(folder / "model.bin")):
                return
            time.sleep(LOOK_SECONDS)

    return fetched


def ours(options: dict[str, Any]) -> Callable[[], object]:
    """Return a host's part, to be called once everybody is ready."""
    if options["role"] == "client":
        sources = asked(options)
        return partial(fetched, options, sources, owned()[1])
    cache, fetches, sources = serving(Path(options["folder"]), options)
    if options["role"] == "origin":
        return partial(publishing, options, cache)
    return threading.Thread(target=relaying, args=(options, cache, fetches, sources), daemon=True).start


def owned() -> tuple[LocalAccount, ManifestScope]:
    owner = Account.from_key(b"\x07" * 32)
    return owner, ManifestScope(PoolId(31337, "0x" + "11" * 20, 1), owner.address)


def published(options: dict[str, Any]) -> bytes:
    """Wait for the manifest's digest: a file stands for the chain."""
    while not Path(options["digest"]).exists():
        time.sleep(LOOK_SECONDS)
    return bytes.fromhex(Path(options["digest"]).read_text())


def asked(options: dict[str, Any]) -> MultiSource:
    upstreams = options["upstreams"] or ["http://127.0.0.1:1"]
    return MultiSource(HttpObjects(upstreams, 60.0, allow_private=True).each())


def fetched(options: dict[str, Any], sources: MultiSource, scope: ManifestScope) -> None:
    folder = Path(options["folder"])
    while True:
        try:
            digest = published(options)
            fetch(digest, sources, folder, scope)
            return
        except MusterError:  # the relays do not have it yet
            time.sleep(LOOK_SECONDS)


def publishing(options: dict[str, Any], cache: RelayCache) -> None:
    named = dict[str, int]()

    class CacheWriter:
        def put(self, key: str, data: bytes) -> bool:
            named[key] = len(data)
            cache.name(named.items())
            return cache.put(key, data)

    owner, scope = owned()
    folder, shard_size = Path(options["file"]).parent, options["shard"]
    made = prepare(folder, make_manifest(folder, scope, 0, None, "bfloat16", shard_size), ())
    send(folder, made, CacheWriter(), owner, shard_size)
    draft = Path(options["digest"] + ".draft")
    draft.write_text(made.manifest.digest.hex())
    draft.replace(options["digest"])


def relaying(options: dict[str, Any], cache: RelayCache, fetches: RelayFetches, sources: MultiSource) -> None:
    digest = published(options)
    key = object_key("manifests", digest)
    stored = sources(key, MAX_STORED_BYTES)
    manifest = unseal(stored, digest, owned()[1])
    missing = cache.name([(key, len(stored)), *((shard.key, shard.size) for shard in manifest.every_shard())])
    cache.put(key, stored)
    for shard in missing:
        if shard != key:
            fetches.start(shard)


def serving(folder: Path, options: dict[str, Any]) -> tuple[RelayCache, RelayFetches, MultiSource]:
    """Start a relay in a thread (the origin's bucket too): return what it holds, brings and asks."""
    cache, sources = RelayCache(folder, 1 << 40), asked(options)
    fetches = RelayFetches(sources, cache)
    app = RelayApp(cache, fetches, ServeWeights(rate=1e6, burst=1e6, transfers=1000))
    server = HttpServer(server_options(app, 1000))
    listener = bound("0.0.0.0", options["port"])
    threading.Thread(target=lambda: server.run(sockets=[listener]), daemon=True).start()
    return cache, fetches, sources


if __name__ == "__main__":
    die_with_parent()
    main(json.loads(sys.argv[1]))
