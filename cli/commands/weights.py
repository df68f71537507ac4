"""`muster weights`: what is in the cache of weights, whether it is sound, and fetching a policy step by hand."""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cli.options import Commands, JsonOption, PoolOption, Reading
from cli.output import clock, emit, table
from protocol.errors import ConfigError

if TYPE_CHECKING:
    from storage.weights.cache import WeightCache
    from storage.weights.manifest import Manifest

app = Commands(help="Policy steps on this machine: what is here, is it sound, fetch, make room.", no_args_is_help=True)

CacheOption = Annotated[
    Path | None, typer.Option("--cache", help="Folder of the weights; the profile's if missing.", file_okay=False)
]


@app.command("ls")
def ls(cache: CacheOption = None, json: JsonOption = False) -> None:
    """List the policy steps that are here, the one used longest ago first."""
    rows = [_row(manifest, _cache(cache)) for manifest in _versions(_cache(cache))]
    emit(rows, json, lambda: _text(rows))


@app.command("verify")
def verify(
    steps: Annotated[list[int] | None, typer.Argument(help="Policy steps; all that are here if none is named.")] = None,
    cache: CacheOption = None,
    json: JsonOption = False,
) -> None:
    """Read every file of the steps that are here and compare its hash with the manifest that the pool's owner signed.
    Exit code 1 if one is damaged; it mends itself when it is used next."""
    place = _cache(cache)
    chosen = [one for one in _versions(place) if not steps or one.step in steps]
    if missing := sorted(set(steps or ()) - {one.step for one in chosen}):
        raise ConfigError(f"step {missing[0]} is not in {place.folder}", "see: muster weights ls")
    rows = [_row(one, place) | {"intact": place.is_intact(one)} for one in chosen]
    emit(rows, json, lambda: _text(rows))
    if not all(row["intact"] for row in rows):
        raise typer.Exit(1)


@app.command("fetch")
def fetch(
    look: Reading,
    orchestrator: Annotated[str, typer.Option(help="The pool's service, or another source of files.")],
    step: Annotated[int | None, typer.Argument(min=0, help="Policy step; the newest if none is named.")] = None,
    pool: PoolOption = 1,
    cache: CacheOption = None,
    allow_private_sources: Annotated[
        bool, typer.Option("--allow-private-sources", help="Follow URLs that others chose into private networks too.")
    ] = False,
) -> None:
    """Bring a policy step here by the hash on chain, with the fewest bytes: deltas from what is here, or full shards.
    Needs no key. What was interrupted goes on."""
    from cli.observer import observer_config
    from protocol.files import user_cache
    from runtime.pool_client import PoolClient
    from runtime.process import EngineConfig

    place, home = _cache(cache), user_cache("weights-fetch")
    config = observer_config(look, pool, orchestrator, EngineConfig(), home, place.folder, allow_private_sources)
    started, client = time.monotonic(), PoolClient(config, None)
    try:
        client.refresh()
        published = client.pool()
        have = len(published.steps) if published else 0
        number = have - 1 if step is None else step
        if not 0 <= number < have:
            known = f"steps are 0 to {have - 1}" if have else "it has published none"
            raise ConfigError(f"pool {pool} has no policy step {'' if step is None else step}".rstrip(), known)
        folder = client.step_weights(number)
    finally:
        client.close()
    manifest = place.manifest(bytes.fromhex(folder.name))
    assert manifest is not None, "it was fetched just now"
    row = _row(manifest, place) | {"seconds": round(time.monotonic() - started, 3)}
    emit(row, look.json, lambda: f"step {number} is in {folder} ({row['bytes']:,} bytes, {row['seconds']:.1f} s)")


@app.command("gc")
def gc(
    keep: Annotated[int, typer.Option(min=0, help="Policy steps to keep, those used last.")] = 5,
    cache: CacheOption = None,
    json: JsonOption = False,
) -> None:
    """Remove all but the steps used last, and what a fetch abandoned a day ago left. A process that still needs one
    fetches it again."""
    place = _cache(cache)
    before = {one.digest: _row(one, place) for one in _versions(place)}
    place.prune(keep)
    left = set(place.versions())
    gone = [row for digest, row in before.items() if digest not in left]
    document = {"removed": gone, "kept": len(left), "freed": sum(row["bytes"] for row in gone)}
    emit(document, json, lambda: f"{len(gone)} steps removed, {document['freed']:,} bytes; {len(left)} kept")


def _cache(folder: Path | None) -> "WeightCache":
    from cli.profile import find_profile
    from protocol.files import user_cache
    from storage.weights.cache import WeightCache

    if folder is not None:
        return WeightCache(folder)
    profile = find_profile(None)
    return WeightCache(profile.cache if profile else user_cache("weights"))


def _versions(cache: "WeightCache") -> "list[Manifest]":
    """Those whose manifest can be read, longest unused first."""
    found = (cache.manifest(digest) for digest in cache.versions())
    return [one for one in found if one is not None]


def _row(manifest: "Manifest", cache: "WeightCache") -> dict[str, Any]:
    folder = cache.version(manifest.digest)
    return {
        "step": manifest.step,
        "pool": manifest.pool,
        "chain_id": manifest.chain_id,
        "manifest": manifest.digest.hex(),
        "dtype": manifest.dtype,
        "bytes": sum(file.size for file in manifest.files),
        "delta_bytes": {str(delta.step): sum(file.size for file in delta.files) for delta in manifest.deltas},
        "used": folder.stat().st_mtime if folder.is_dir() else 0.0,
        "folder": str(folder),
    }


def _text(rows: list[dict[str, Any]]) -> str:
    checked = bool(rows) and "intact" in rows[0]
    headers = ["pool", "step", "bytes", "deltas from", "used", "manifest", *(["hashes"] if checked else [])]
    cells = [
        [
            row["pool"],
            row["step"],
            row["bytes"],
            ", ".join(f"{step} ({size:,} bytes)" for step, size in row["delta_bytes"].items()) or "-",
            clock(row["used"]),
            row["manifest"][:12],
            *(["as signed" if row["intact"] else "DAMAGED"] if checked else []),
        ]
        for row in rows
    ]
    return table(headers, cells, empty="no policy step is here")
