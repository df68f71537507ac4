"""The table of resting problems: what curricula leave out of a policy step's work, and how a draw passes it by.

The table is a file of the step's weights, so the manifest on chain commits to it before the step's seed is known, and
whoever makes or judges a file of the step has exactly this one. Which table it should be follows from chain and bucket
(runtime/solve_rates.py). docs/protocol.md, section 3, has the format.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from protocol.curriculum import Difficulty, SolveRate, Tried
from protocol.encoding import canonical_json, tagged_hash, words
from protocol.environments import EnvironmentConfig, chosen_environment, drawn
from protocol.errors import IntegrityError

if TYPE_CHECKING:
    from protocol.config import PoolConfig

TABLE = "resting.table"
"""Its name among the files of a policy step."""
MAX_LEFT_OUT = 64
MAX_LOOKS = 4096
_HEADER_BYTES = 8192
_DRAWN, _HARD, _EASY = 0, 1, 2
_CODES = {Difficulty.HARD: _HARD, Difficulty.EASY: _EASY}
_BLAME = "report it to the pool's owner, whose trainer publishes it with every step"


@dataclass(frozen=True)
class Resting:
    """`codes`: place of an environment with a curriculum → a byte for each of its numbered problems: 0 it is drawn,
    1 it rests as too hard, 2 as too easy. `left_out`: sequences of final files that could not be counted, for nobody
    served them; with MAX_LEFT_OUT of them nothing rests."""

    codes: Mapping[int, bytes] = field(default_factory=dict)
    left_out: tuple[int, ...] = ()

    def rests(self, environment: int, number: int) -> bool:
        return environment in self.codes and self.codes[environment][number] != _DRAWN

    def count(self, environment: int, difficulty: Difficulty) -> int:
        """How many problems of an environment rest as hard or as easy."""
        return self.codes[environment].count(_CODES[difficulty])

    def encoded(self, config: "PoolConfig") -> bytes:
        """The table's file: as long, and with the same header, at every step of a pool."""
        numbers = b"".join(one.to_bytes(8, "big") for one in self.left_out).ljust(8 * MAX_LEFT_OUT, b"\xff")
        return _header(config) + numbers + b"".join(self.codes[place] for place in config.curricula)

    @classmethod
    def decoded(cls, config: "PoolConfig", data: bytes) -> "Resting":
        """What an owner published. Raises IntegrityError for anything but a table of this pool."""
        header, wrong = _header(config), IntegrityError("the table of resting problems is malformed", _BLAME)
        if len(data) != table_bytes(config) or not data.startswith(header):
            raise wrong
        at, codes, left = len(header) + 8 * MAX_LEFT_OUT, {}, []
        for start in range(len(header), at, 8):
            if data[start : start + 8] != b"\xff" * 8:
                left.append(int.from_bytes(data[start : start + 8], "big"))
        for place, one in config.curricula.items():
            codes[place] = data[at : at + one.numbered]
            at += one.numbered
            if codes[place].strip(bytes((_DRAWN, _HARD, _EASY))):
                raise wrong
        found = cls(codes, tuple(left))
        if found.encoded(config) != data or left != sorted(set(left)):
            raise wrong
        return found

    @classmethod
    def load(cls, config: "PoolConfig", folder: Path) -> "Resting | None":
        """Of a policy step's folder; None where the pool has no curriculum. Raises IntegrityError."""
        if not config.curricula:
            return None
        path = folder / TABLE
        try:
            if path.is_symlink() or path.stat().st_size != table_bytes(config):
                raise IntegrityError(f"{path} is not a table of resting problems", _BLAME)
            return cls.decoded(config, path.read_bytes())
        except OSError:
            raise IntegrityError(f"the policy step has no {TABLE}, though the pool has a curriculum", _BLAME) from None


def table_bytes(config: "PoolConfig") -> int:
    """The length of a pool's tables."""
    return len(_header(config)) + 8 * MAX_LEFT_OUT + sum(one.numbered for one in config.curricula.values())


def _header(config: "PoolConfig") -> bytes:
    """That of a safetensors file, which deltas of weights understand. Filled up with spaces: so a delta is shorter than
    the file whatever changes, and a step never loses its deltas to a small table."""
    fields, at = {}, 0
    lengths = {"left_out": 8 * MAX_LEFT_OUT} | {f"{place}": one.numbered for place, one in config.curricula.items()}
    for name, size in lengths.items():
        fields[name] = {"dtype": "U8", "shape": [size], "data_offsets": [at, at + size]}
        at += size
    text = canonical_json(fields).ljust(_HEADER_BYTES)
    return len(text).to_bytes(8, "little") + text


def tried(config: "PoolConfig", rollouts: Iterable[tuple[int, float]]) -> list[Tried]:
    """What a file says of its problems: `rollouts` are the problem seed and the task reward of each, which its
    committee has checked. A problem without a number goes by its seed."""
    found: dict[tuple[int, int], list[int]] = {}
    for seed, reward in rollouts:
        place = drawn(config.environments, seed).environment
        own = config.environments[place]
        solved = own.curriculum.solved if own.curriculum is not None else 1.0
        counts = found.setdefault((place, own.number(seed)), [0, 0])
        counts[0] += 1
        counts[1] += reward >= solved
    return [Tried(place, number, SolveRate(*counts)) for (place, number), counts in found.items()]


def resting(
    config: "PoolConfig", step: int, rates: Mapping[int, Mapping[int, SolveRate]], left_out: Iterable[int] = ()
) -> Resting:
    """The table of policy step `step`. `rates`: place of each environment with a curriculum → number of a problem → its
    rate over that environment's window; `left_out`: as in `Resting`."""
    missing = tuple(sorted(left_out))[:MAX_LEFT_OUT]
    full = len(missing) == MAX_LEFT_OUT
    codes = {place: _codes(place, one, step, {} if full else rates[place]) for place, one in config.curricula.items()}
    return Resting(codes, missing)


def _codes(place: int, own: EnvironmentConfig, step: int, rates: Mapping[int, SolveRate]) -> bytes:
    assert own.curriculum is not None
    found = {number: rate.difficulty(own.curriculum) for number, rate in rates.items()}
    rest = [number for number, difficulty in found.items() if difficulty in _CODES]
    most = own.kept * own.curriculum.most // 1000
    if len(rest) > most:
        # Whose turn it is to be drawn all the same: by lot, another one at every step.
        rest = sorted(rest, key=lambda number: tagged_hash("muster/rest/1", step, place, number))[:most]
    codes = bytearray(own.numbered)
    for number in rest:
        codes[number] = _CODES[found[number]]
    return bytes(codes)


def awake(config: "PoolConfig", first: int, table: Resting | None) -> int:
    """The problem seed of a slot whose draw is `first`: that draw, or where its problem rests the first of the public
    hashes of it that falls to the same environment and to a problem that does not, of MAX_LOOKS at most.

    Raises IntegrityError where the pool has a curriculum and there is no table.
    """
    if not config.curricula:
        return first
    if table is None:
        raise IntegrityError("work is drawn by a table of resting problems, and there is none", _BLAME)
    weights = [one.weight for one in config.environments]
    place, seed = chosen_environment(weights, first), first
    own = config.environments[place]
    for number in range(1, MAX_LOOKS):
        if place == chosen_environment(weights, seed) and not table.rests(place, own.number(seed)):
            return seed
        (seed,) = words(tagged_hash("muster/awake/1", first, number), 1)
    return first
