"""Which site trains on an accepted file, or on a document of a text run: exactly one, by a public rule."""

from collections.abc import Iterable, Sequence

from protocol.encoding import tagged_hash

_TAG = "muster.sites.dealing.v1"


def dealt_to(seed: bytes, item: bytes, sites: Iterable[str]) -> str:
    """The one of `sites` (addresses) whose hash with the item is highest: when others leave or join, an item moves only
    from a site that left or to one that joined. `seed`: 32 bytes, public, of the run; `item`: SHA-256 of the file, or
    the document's number as 32 bytes. Raises ValueError for no sites."""
    return max(sites, key=lambda site: (tagged_hash(_TAG, seed, item, site), site.lower()))


def dealt_evenly(seed: bytes, items: Sequence[bytes], sites: Iterable[str]) -> dict[str, tuple[bytes, ...]]:
    """Of each of `sites` those of the `items` that it gets, numbers of them that differ by one at most: both are put in
    the order of their hashes with the seed, and dealt round and round. Items that occur twice count once."""
    ranked = sorted(set(sites), key=lambda site: (tagged_hash(_TAG, seed, seed, site), site.lower()))
    ordered = sorted(set(items), key=lambda item: tagged_hash(_TAG, seed, item))
    return {site: tuple(ordered[at :: len(ranked)]) for at, site in enumerate(ranked)}
