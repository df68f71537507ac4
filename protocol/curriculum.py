"""A curriculum masks problems that the models nearly always or hardly ever solve, until those tries are too old.

The mask is a file of the policy step's weights, so the manifest on chain commits to it before the step's seed is known.
It follows from the files that were accepted for good (runtime/curriculum.py), in integers only.
docs/reference/protocol.md has the format.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from protocol.config import Curriculum, EnvironmentConfig, PoolConfig, chosen_environment, drawn
from protocol.encoding import canonical_json, tagged_hash, words
from protocol.errors import IntegrityError

MASK_FILE = "curriculum.mask"  # Its name among the files of a policy step
MAX_LEFT_OUT = 64
MAX_DRAWS = 4096
_HEADER_BYTES = 8192
_BLAME = "report it to the pool's owner, whose trainer publishes it with every step"


class Difficulty(StrEnum):
    """What a problem is to the models that tried it."""

    FRESH = "fresh"
    HARD = "hard"
    FITTING = "fitting"
    EASY = "easy"


@dataclass(frozen=True)
class SolveRate:
    """Tries at one problem, and how many of them solved it."""

    tried: int = 0
    solved: int = 0

    def __add__(self, other: "SolveRate") -> "SolveRate":
        return SolveRate(self.tried + other.tried, self.solved + other.solved)

    def difficulty(self, curriculum: Curriculum) -> Difficulty:
        if self.tried < curriculum.tries:
            return Difficulty.FRESH
        if 1000 * self.solved < curriculum.lowest * self.tried:
            return Difficulty.HARD
        return Difficulty.EASY if 1000 * self.solved > curriculum.highest * self.tried else Difficulty.FITTING


Tries = Mapping[tuple[int, int], SolveRate]
"""Of one or several files: (index of the pool's environment, number of the problem) → the rate."""


def add_tries(files: Iterable[Tries]) -> Tries:
    """Add the tries of several files up, whose order changes nothing."""
    total: dict[tuple[int, int], SolveRate] = {}
    for tries in files:
        for problem, rate in tries.items():
            total[problem] = total.get(problem, SolveRate()) + rate
    return total


_CODES = {Difficulty.HARD: 1, Difficulty.EASY: 2}


@dataclass(frozen=True)
class CurriculumMask:
    """The masked problems of a policy step.

    `codes`: index of an environment with a curriculum → a byte for each of its numbered problems: 0 it is drawn, 1 it
    is masked as too hard, 2 as too easy. `left_out`: sequences of final files that nobody served, so that they could
    not be counted; with MAX_LEFT_OUT of them nothing is masked."""

    codes: Mapping[int, bytes] = field(default_factory=dict)
    left_out: tuple[int, ...] = ()

    def masks(self, environment: int, number: int) -> bool:
        """Return whether a problem is masked."""
        return environment in self.codes and self.codes[environment][number] != 0

    def count(self, environment: int, difficulty: Difficulty) -> int:
        """Return how many problems of an environment are masked as hard or as easy."""
        return self.codes[environment].count(_CODES[difficulty])

    def encoded(self, config: PoolConfig) -> bytes:
        """Encode the mask's file, of the same length and with the same header at every step of a pool."""
        numbers = b"".join(sequence.to_bytes(8, "big") for sequence in self.left_out).ljust(8 * MAX_LEFT_OUT, b"\xff")
        return _header(config) + numbers + b"".join(self.codes[index] for index in config.curricula)

    @classmethod
    def decoded(cls, config: PoolConfig, data: bytes) -> "CurriculumMask":
        """Decode what an owner published. Raises IntegrityError unless it is a mask of this pool."""
        header, wrong = _header(config), IntegrityError("the curriculum mask is malformed", _BLAME)
        if len(data) != mask_bytes(config) or not data.startswith(header):
            raise wrong
        at, codes, left_out = len(header) + 8 * MAX_LEFT_OUT, {}, []
        for start in range(len(header), at, 8):
            if data[start : start + 8] != b"\xff" * 8:
                left_out.append(int.from_bytes(data[start : start + 8], "big"))
        for index, environment in config.curricula.items():
            codes[index] = data[at : at + environment.numbered]
            at += environment.numbered
            if codes[index].strip(bytes((0, *_CODES.values()))):
                raise wrong
        mask = cls(codes, tuple(left_out))
        if mask.encoded(config) != data or left_out != sorted(set(left_out)):
            raise wrong
        return mask

    @classmethod
    def load(cls, config: PoolConfig, folder: Path) -> "CurriculumMask | None":
        """Read the mask of a policy step's folder; None where the pool has no curriculum. Raises IntegrityError."""
        if not config.curricula:
            return None
        path = folder / MASK_FILE
        try:
            if path.is_symlink() or path.stat().st_size != mask_bytes(config):
                raise IntegrityError(f"{path} is not a curriculum mask", _BLAME)
            return cls.decoded(config, path.read_bytes())
        except OSError:
            what = f"the policy step has no {MASK_FILE}, though the pool has a curriculum"
            raise IntegrityError(what, _BLAME) from None


def mask_bytes(config: PoolConfig) -> int:
    """Return the length of a pool's masks."""
    return (
        len(_header(config)) + 8 * MAX_LEFT_OUT + sum(curriculum.numbered for curriculum in config.curricula.values())
    )


def _header(config: PoolConfig) -> bytes:
    """Return a safetensors header, which deltas of weights understand. Padded with spaces, so that a delta is shorter
    than the file whatever changes, and a step never loses its deltas to a small mask."""
    fields, at = {}, 0
    lengths = {"left_out": 8 * MAX_LEFT_OUT} | {
        f"{index}": curriculum.numbered for index, curriculum in config.curricula.items()
    }
    for name, size in lengths.items():
        fields[name] = {"dtype": "U8", "shape": [size], "data_offsets": [at, at + size]}
        at += size
    text = canonical_json(fields).ljust(_HEADER_BYTES)
    return len(text).to_bytes(8, "little") + text


def count_tries(config: PoolConfig, rollouts: Iterable[tuple[int, float]]) -> Tries:
    """Return the tries of a file. `rollouts`: the problem seed and the task reward of each, which its committee has
    checked. A problem without a number goes by its seed."""
    tries = []
    for seed, reward in rollouts:
        index = drawn(config.environments, seed).environment
        environment = config.environments[index]
        solved = environment.curriculum.solved if environment.curriculum is not None else 1.0
        tries.append({(index, environment.number(seed)): SolveRate(1, int(reward >= solved))})
    return add_tries(tries)


def build_mask(
    config: PoolConfig, step: int, rates: Mapping[int, Mapping[int, SolveRate]], left_out: Iterable[int] = ()
) -> CurriculumMask:
    """Return the mask of policy step `step`. `rates`: index of each environment with a curriculum → number of a problem
    → its rate over that environment's window."""
    missing = tuple(sorted(left_out))[:MAX_LEFT_OUT]
    full = len(missing) == MAX_LEFT_OUT
    codes = {
        index: _codes(index, curriculum, step, {} if full else rates[index])
        for index, curriculum in config.curricula.items()
    }
    return CurriculumMask(codes, missing)


def _codes(index: int, environment: EnvironmentConfig, step: int, rates: Mapping[int, SolveRate]) -> bytes:
    assert environment.curriculum is not None
    difficulties = {number: rate.difficulty(environment.curriculum) for number, rate in rates.items()}
    masked = [number for number, difficulty in difficulties.items() if difficulty in _CODES]
    most = environment.kept * environment.curriculum.most // 1000
    if len(masked) > most:
        # Public chance decides which of them are drawn after all, again at every step.
        masked = sorted(masked, key=lambda number: tagged_hash("muster/masked/1", step, index, number))[:most]
    codes = bytearray(environment.numbered)
    for number in masked:
        codes[number] = _CODES[difficulties[number]]
    return bytes(codes)


def unmasked_seed(config: PoolConfig, first: int, mask: CurriculumMask | None) -> int:
    """Return the problem seed of a slot whose draw is `first`: that draw, or where its problem is masked the first of
    MAX_DRAWS public hashes that falls to an unmasked problem of the same environment. Raises IntegrityError where the
    pool has a curriculum and there is no mask."""
    if not config.curricula:
        return first
    if mask is None:
        raise IntegrityError("work is drawn by a curriculum mask, and there is none", _BLAME)
    weights = [environment.weight for environment in config.environments]
    index, seed = chosen_environment(weights, first), first
    environment = config.environments[index]
    for attempt in range(1, MAX_DRAWS):
        if index == chosen_environment(weights, seed) and not mask.masks(index, environment.number(seed)):
            return seed
        (seed,) = words(tagged_hash("muster/unmasked/1", first, attempt), 1)
    return first
