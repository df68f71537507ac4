"""What a reducer says of the shards that are its own, where each member of an attempt reduces some: first what they add
to admission, once that is known of all shards, their means.

Both are canonical JSON, named by the SHA-256 that a signed note tells. Whoever has the payload's shards computes both
again: products are summed in a fixed order, means in float32 in ascending order of the sites, and written as a
contribution's shard is. Two encoders may pack the same numbers differently, so means are compared as numbers.
"""

import math
import struct
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import Field

from protocol.api.base import Address, Hex64, Rows, SignedBody, at_most
from protocol.encoding import canonical_json, tagged_hash
from protocol.errors import IntegrityError
from protocol.signing import open_canonical
from protocol.sites.config import MAX_SITES
from protocol.sites.contribution import MAX_STEP, ShardEntry
from protocol.sites.dealing import dealt_evenly
from protocol.sites.reductions import Products, added

_TAG = "muster.sites.reducing.v1"
_LARGEST = 1e120
"""Of a product: of finite float32, as many as fit a model, none is larger."""
_AROUND, _PER_SITE, _PER_SHARD, _PER_CELL = 1024, 128, 160, 20
_Documents = Annotated[dict[Address, Hex64], at_most(MAX_SITES)]
_Cell = Annotated[str, Field(pattern=r"^[0-9a-f]{16}$")]
NOT_A_NUMBER = struct.pack(">d", math.nan).hex()


class MalformedPart(IntegrityError):
    """Products or means that no honest reducer publishes."""


def reducers_of(seed: bytes, step: int, attempt: int, shards: int, sites: Collection[str]) -> dict[int, str]:
    """Which of `sites` reduces which of the shards in an attempt at an outer step: numbers of them that differ by one
    at most, other ones each time. `seed`: 32 bytes, of the run."""
    mixed = tagged_hash(_TAG, seed, step, attempt)
    dealt = dealt_evenly(mixed, [number.to_bytes(32, "big") for number in range(shards)], sites)
    return {int.from_bytes(item, "big"): site for site, items in dealt.items() for item in items}


@dataclass(frozen=True)
class ReductionPlace:
    """An attempt at an outer step, of which the payloads are there. `run`, `base`: hex digests of the run's document
    and of the state that it starts from; `made_of`: the contributions by site; `reducers`: of each shard its own."""

    run: str
    step: int
    attempt: int
    base: str
    made_of: Mapping[str, str]
    reducers: Mapping[int, str]

    @property
    def sites(self) -> tuple[str, ...]:
        """Who contributes, in the order of rows and columns of the products."""
        return tuple(sorted(self.made_of))

    def part(self, site: str) -> tuple[int, ...]:
        """The shards that `site` reduces, ascending."""
        return tuple(sorted(number for number, one in self.reducers.items() if one == site))

    @property
    def file_bytes(self) -> int:
        """Of products or means at most."""
        sites = len(self.made_of)
        per_shard = _PER_SHARD + _PER_CELL * sites * (sites + 1) // 2
        return _AROUND + _PER_SITE * max(sites, len(self.reducers)) + per_shard * len(self.reducers)


class _ReducersPart(SignedBody):
    """Of `site`, in an attempt at an outer step of a run, from the state of digest `base`."""

    version: Literal[1] = 1
    run: Hex64
    site: Address
    step: int = Field(ge=0, lt=MAX_STEP)
    attempt: int = Field(ge=0, lt=1 << 32)
    base: Hex64

    def encode(self) -> bytes:
        return canonical_json(self.model_dump(mode="json"))


class ShardProducts(SignedBody):
    """Of shard `shard`: the products of all contributions with one another, the upper triangle row by row, each a
    float64 in hex; not a number in the row of a contribution whose shard does not decode."""

    shard: int = Field(ge=0, lt=1024)
    cells: Annotated[Rows[_Cell], Field(max_length=MAX_SITES * (MAX_SITES + 1) // 2)]


class PartProducts(_ReducersPart):
    """What the reducer's shards add to admission; `made_of`: the contributions."""

    made_of: _Documents
    shards: Annotated[Rows[ShardProducts], Field(max_length=1024)]

    @property
    def by_shard(self) -> dict[int, Products]:
        """[sites, sites] of each."""
        return {one.shard: _square(one.cells, len(self.made_of)) for one in self.shards}


class ShardMean(ShardEntry):
    """The file that holds the mean of shard `shard`."""

    shard: int = Field(ge=0, lt=1024)


class PartMeans(_ReducersPart):
    """The means of the reducer's shards, by the shares that follow from `products`: all reducers' documents."""

    products: _Documents
    shards: Annotated[Rows[ShardMean], Field(max_length=1024)]


def make_products(place: ReductionPlace, site: str, products: Mapping[int, Products]) -> PartProducts:
    """`products`: of each of the site's shards."""
    shards = [ShardProducts(shard=number, cells=_triangle(products[number])) for number in sorted(products)]
    made_of = dict(sorted(place.made_of.items()))
    return PartProducts(**_head(place, site), made_of=made_of, shards=shards)


def make_means(
    place: ReductionPlace, site: str, products: Mapping[str, str], means: Mapping[int, ShardEntry]
) -> PartMeans:
    """`products`: all reducers' documents; `means`: the file of each of the site's shards."""
    shards = [ShardMean(shard=number, **means[number].model_dump()) for number in sorted(means)]
    return PartMeans(**_head(place, site), products=dict(sorted(products.items())), shards=shards)


def open_products(data: bytes, place: ReductionPlace, site: str) -> PartProducts:
    """A stranger's. Raises MalformedPart for anything but the one encoding of `site`'s part at that place."""
    found = open_canonical(data, PartProducts, place.file_bytes, "a reducer's products", MalformedPart)
    _check_place(found, place, site)
    if dict(found.made_of) != dict(place.made_of):
        raise MalformedPart("its products are of other contributions than were opened")
    _check_shards([one.shard for one in found.shards], place, site)
    for one in found.shards:
        _check_cells(one, len(place.made_of))
    return found


def open_means(
    data: bytes, place: ReductionPlace, site: str, products: Mapping[str, str], longest: Sequence[int]
) -> PartMeans:
    """The same of means; `products`: of all reducers; `longest`: bytes of each shard of the model at most."""
    found = open_canonical(data, PartMeans, place.file_bytes, "a reducer's means", MalformedPart)
    _check_place(found, place, site)
    if dict(found.products) != dict(products):
        raise MalformedPart("its means are made by other products than the log has")
    _check_shards([one.shard for one in found.shards], place, site)
    for one in found.shards:
        if one.size > longest[one.shard]:
            raise MalformedPart(f"its mean of shard {one.shard} has {one.size} bytes, {longest[one.shard]} at most")
    return found


def added_up(parts: Sequence[PartProducts]) -> Products:
    """The products of whole contributions, in the order of their sites; the parts are of all shards."""
    shards = {number: one for part in parts for number, one in part.by_shard.items()}
    return added([shards[number] for number in sorted(shards)])


def undecodable(parts: Sequence[PartProducts]) -> dict[int, int]:
    """By number of the site in their order: the first shard of it that does not decode, as the reducers say."""
    found: dict[int, int] = {}
    for part in parts:
        for shard, products in part.by_shard.items():
            for at, row in enumerate(products):
                if math.isnan(row[at]):
                    found[at] = min(shard, found.get(at, shard))
    return found


def same(one: Products, other: Products) -> bool:
    """To the bit."""
    return _triangle(one) == _triangle(other)


def _head(place: ReductionPlace, site: str) -> dict[str, Any]:
    return {"run": place.run, "site": site, "step": place.step, "attempt": place.attempt, "base": place.base}


def _check_place(found: _ReducersPart, place: ReductionPlace, site: str) -> None:
    said = found.run, found.site, found.step, found.attempt, found.base
    if said != (place.run, site, place.step, place.attempt, place.base):
        raise MalformedPart(
            f"it is of {found.site} in attempt {found.attempt} at outer step {found.step}, or elsewhere"
        )


def _check_shards(numbers: Sequence[int], place: ReductionPlace, site: str) -> None:
    if tuple(numbers) != place.part(site):
        raise MalformedPart(f"it is of shards {list(numbers)[:8]}, {site} reduces {list(place.part(site))[:8]}")


def _check_cells(one: ShardProducts, sites: int) -> None:
    if len(one.cells) != sites * (sites + 1) // 2:
        raise MalformedPart(f"{len(one.cells)} products of {sites} contributions")
    square = _square(one.cells, sites)
    bad = [math.isnan(square[at][at]) for at in range(sites)]
    for row in range(sites):
        for column in range(row, sites):
            value = square[row][column]
            if (bad[row] or bad[column]) != math.isnan(value) or abs(value) > _LARGEST:
                raise MalformedPart(f"a product of shard {one.shard} is {value}")
        if square[row][row] < 0:
            raise MalformedPart(f"a square of shard {one.shard} is {square[row][row]}")


def _triangle(products: Products) -> list[str]:
    cells = [products[row][column] for row in range(len(products)) for column in range(row, len(products))]
    return [NOT_A_NUMBER if math.isnan(one) else struct.pack(">d", one).hex() for one in cells]


def _square(cells: Sequence[str], sites: int) -> Products:
    made, given = [[0.0] * sites for _ in range(sites)], iter(cells)
    for row in range(sites):
        for column in range(row, sites):
            (made[row][column],) = struct.unpack(">d", bytes.fromhex(next(given)))
            made[column][row] = made[row][column]
    return made
