"""The log's entry that ends an outer step and begins the next."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict

from protocol.sites.log import Boundary, MarksOfSite
from protocol.sites.outer import OuterState
from trainer.sites.logbook import Logbook


def boundary_to(
    book: Logbook, after: OuterState, made_of: Mapping[str, str], counted: Sequence[str], listed: str | None
) -> Boundary:
    """The boundary to the state `after` that the attempt under way led to. `made_of`: its contributions' documents by
    site; `counted`: the sites whose contributions count; `listed`: the hash of the published state's list, if it is
    published."""
    now = book.schedule
    bare = Boundary(step=after.step, digest=after.digest.hex(), attempt=now.attempt)
    begun = now.after_boundary(bytes.fromhex(bare.digest))
    return bare.model_copy(
        update={
            "members": sorted(begun.members),
            "waiting": sorted(begun.waiting),
            "made_of": dict(made_of),
            "counted": list(counted),
            "products": dict(now.products),
            "means": dict(now.means),
            "before": book.chapter,
            "state": listed,
            "notes": {site: number for site, number in sorted(book.notes.items()) if number},
            "marks": {site: MarksOfSite(**asdict(one)) for site, one in sorted(begun.marks.items())},
        }
    )
