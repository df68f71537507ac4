"""A relay without a chain, as a process of its own: it is told its upstreams and which manifests to believe."""

import json
import resource
import sys
from pathlib import Path

from protocol.files import die_with_parent
from runtime.server import HttpServer, bound, server_options
from storage.keys import object_key
from storage.relay import cache
from storage.relay.cache import RelayCache, RelayFetches
from storage.relay.server import RelayApp, RelayLimits
from storage.sources import MultiSource
from storage.transfers import HttpObjects
from storage.weights.manifest import MAX_STORED_BYTES, unseal
from tests.storage.weights.folders import PUBLISHER


def main(options: dict[str, object]) -> None:
    """`upstreams`, `manifests` (digests in hex), `folder`, `port`, `room`, `limits`; `again`: after how many
    seconds it looks again for what could not be had; `open_files`: how many it may have open at first."""
    cache.AGAIN_SECONDS = float(options.get("again", cache.AGAIN_SECONDS))  # type: ignore[arg-type]
    if "open_files" in options:
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (int(options["open_files"]), hard))  # type: ignore[call-overload]
    objects = HttpObjects(list(options["upstreams"]), timeout=10.0)  # type: ignore[call-overload]
    spread = MultiSource(objects.each())
    held = RelayCache(Path(str(options["folder"])), int(options.get("room", 1 << 30)))  # type: ignore[call-overload]
    named, stored = list[tuple[str, int]](), dict[str, bytes]()
    for digest in options["manifests"]:  # type: ignore[attr-defined]
        key = object_key("manifests", bytes.fromhex(digest))
        stored[key] = spread(key, MAX_STORED_BYTES)
        manifest = unseal(stored[key], bytes.fromhex(digest), PUBLISHER)
        named += [(key, len(stored[key])), *((shard.key, shard.size) for shard in manifest.every_shard())]
    held.name(named)
    for key, data in stored.items():
        held.put(key, data)
    limits = RelayLimits(**options.get("limits", {}))  # type: ignore[arg-type]
    app = RelayApp(held, RelayFetches(spread, held), limits)
    listener = bound("127.0.0.1", int(options["port"]))  # type: ignore[call-overload]
    HttpServer(server_options(app, 64)).run(sockets=[listener])


if __name__ == "__main__":
    die_with_parent()
    main(json.loads(sys.argv[1]))
