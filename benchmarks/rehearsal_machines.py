"""Who takes part in benchmarks/rehearsal.py: machines of operators, right and wrong, in two pools of the demo's; the
processes that make files, rehearse them and judge them as a committee's seats."""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from eth_utils.address import to_checksum_address

from engines.runtime import vllm_installed
from localnet.plan import pool_config
from protocol.config import BF16_CHECKS, ChecksConfig, PoolConfig
from protocol.encoding import canonical_json, sha256_hex
from protocol.identity import PoolId, WorkId
from protocol.seeds import AUDIT_EVERYTHING, Work
from runtime.process import EngineConfig

FLOAT32, BFLOAT16 = "float32", "bfloat16"
DTYPES = (FLOAT32, BFLOAT16)
RATES = {"everything": AUDIT_EVERYTHING, "a quarter": AUDIT_EVERYTHING // 4}
BASE, COARSE, FINE = "base", 1e-4, 1e-6
"""Policy step 0 is the demo's base model; later steps moved at one of two learning rates."""
HONEST, WRONG, EDGE = "honest", "wrong", "edge"
Kind = Literal["honest", "wrong", "edge"]


def policy(rate: float, behind: int = 0) -> str:
    """Name of the newest policy of a learning rate, or of one that many steps behind."""
    return f"lr-{rate:g}-behind-{behind}"


@dataclass(frozen=True)
class Machine:
    """What makes files for the pool that computes in `pool`. `kind`: honest; wrong; or edge: wrong by so little that
    its figures lie about the thresholds. `attack` is one of the registry's, at `strength`. `stale`: (learning rate,
    steps behind) of the weights it has instead of the newest."""

    kind: Kind
    pool: str
    engine: EngineConfig
    files: int
    attack: str = ""
    strength: float = 0.0
    stale: tuple[float, int] | None = None

    @property
    def name(self) -> str:
        does = [f"{self.attack}={self.strength:g}" if self.strength else self.attack] if self.attack else []
        does += [f"{self.stale[1]} steps behind at lr {self.stale[0]:g}"] if self.stale else []
        does += ["honest"] if self.kind == HONEST else ["other dtype"] if self.engine.dtype != self.pool else []
        one = self.engine
        return f"{self.pool}: {one.name} {one.dtype}, {one.threads} threads, batch {one.batch}: {', '.join(does)}"


@dataclass(frozen=True)
class File:
    """File `number` of a machine. Every second one is of the base model, the others of a later policy."""

    machine: Machine
    number: int

    @property
    def name(self) -> str:
        return f"{self.machine.name} #{self.number}"

    @property
    def policy(self) -> str:
        """What it is judged with."""
        if self.machine.stale:
            return policy(self.machine.stale[0])
        return policy(COARSE) if self.number % 2 else BASE

    @property
    def policy_of_maker(self) -> str:
        return policy(*self.machine.stale) if self.machine.stale else self.policy

    @property
    def work(self) -> Work:
        step = 0 if self.policy == BASE else 1
        node = to_checksum_address(_hash("node", self.machine.name)[:20])
        number = 1 + DTYPES.index(self.machine.pool)
        at = WorkId(PoolId(31337, "0x" + "22" * 20, number), node, step, self.number)
        return Work(at, _hash("step", self.policy), manifest_of(self.policy))

    def seed(self, who: str) -> bytes:
        """What draws its audited rows: the beacon's seed, or the one that a rehearsal makes up."""
        return _hash(who, self.name)


def manifest_of(policy_name: str) -> bytes:
    return _hash("manifest", policy_name)


def _hash(*parts: str) -> bytes:
    return hashlib.sha256("/".join(("rehearsal", *parts)).encode()).digest()


@dataclass(frozen=True)
class Station:
    """A process, and what it does: make files or rehearse them, with the engines that their machines have, or judge
    them as a seat, with its own. vLLM keeps to the one that it was started with."""

    name: str
    does: tuple[Literal["make", "rehearse", "seat"], ...]
    engine: EngineConfig
    dtypes: tuple[str, ...] = DTYPES

    @property
    def seat(self) -> str:
        one = self.engine
        return f"{one.name}, {one.threads} threads, batch {one.batch}"

    def files(self, does: str, files: list[File]) -> list[File]:
        """Those that it makes or judges."""
        if does != "make":
            return [file for file in files if file.machine.pool in self.dtypes]
        made = [file for file in files if file.machine.engine.name == self.engine.name]
        return [file for file in made if file.machine.engine.dtype in self.dtypes]


@dataclass(frozen=True)
class RehearsalCase:
    """Everything that a run measures. `configs`: pools by dtype. `slices`: the shares of every machine's files that are
    done after each."""

    configs: dict[str, PoolConfig]
    machines: tuple[Machine, ...]
    places: tuple[Station, ...]
    slices: tuple[float, ...] = (1.0,)

    @property
    def digest(self) -> str:
        """What kept files must have been measured with."""
        configs = [config.digest.hex() for config in self.configs.values()]
        return sha256_hex(canonical_json([configs, [place.seat for place in self.places]]))

    @property
    def files(self) -> list[File]:
        return [file for number in range(len(self.slices)) for file in self.slice(number)]

    def slice(self, number: int) -> list[File]:
        begin, end = (0.0, *self.slices)[number : number + 2]
        parts = [(machine, range(int(begin * machine.files), int(end * machine.files))) for machine in self.machines]
        return [File(machine, at) for machine, part in parts for at in part]


def case(quick: bool) -> RehearsalCase:
    """A quick one has one pool, three machines, one seat, and no vLLM."""
    configs = {dtype: _config(dtype) for dtype in DTYPES}
    if quick:
        machines = tuple(one for one in _plain(FLOAT32, 2, 2) if one.engine == EngineConfig(batch=64))[:3]
        return RehearsalCase({FLOAT32: configs[FLOAT32]}, machines, QUICK_PLACES)
    machines = tuple(one for dtype in DTYPES for one in (*_plain(dtype, 90, 16), *_edge(dtype, 20)))
    if vllm_installed():
        return RehearsalCase(configs, machines, PLACES, SLICES)
    machines = tuple(one for one in machines if one.engine.name == "transformers")
    return RehearsalCase(configs, machines, WITHOUT_VLLM, SLICES)


def _config(dtype: str) -> PoolConfig:
    config = pool_config(1, 1)
    model = config.model.model_copy(update={"dtype": dtype})
    checks = BF16_CHECKS if dtype == BFLOAT16 else ChecksConfig()
    return config.model_copy(update={"model": model, "checks": checks})


def _engine(name: str, threads: int, batch: int, dtype: str = FLOAT32) -> EngineConfig:
    return EngineConfig.model_validate({"name": name, "threads": threads, "batch": batch, "dtype": dtype})


def _plain(dtype: str, honest: int, wrong: int) -> Iterator[Machine]:
    """Of one pool: machines that are right, and those that are plainly wrong."""
    usual, other = _engine("transformers", 1, 64, dtype), DTYPES[1 - DTYPES.index(dtype)]
    fast = _engine("vllm", 1, 64, dtype)
    for engine in (usual, _engine("transformers", 2, 24, dtype), fast):
        yield Machine("honest", dtype, engine, honest)
    yield Machine("wrong", dtype, usual, wrong, "weights-noise", 0.02)
    yield Machine("wrong", dtype, usual, wrong, "temperature", 0.7 if dtype == FLOAT32 else 0.3)
    yield Machine("wrong", dtype, fast, wrong, "weights-noise", 0.02)
    yield Machine("wrong", dtype, usual, wrong, "weights-small")
    yield Machine("wrong", dtype, usual, wrong, "seed")
    if dtype == FLOAT32:
        yield Machine("wrong", dtype, usual.model_copy(update={"dtype": other}), wrong)
        yield Machine("wrong", dtype, usual, wrong, "weights-int8")
        yield Machine("wrong", dtype, fast, wrong, "temperature", 0.7)
        yield Machine("wrong", dtype, usual, wrong, stale=(COARSE, 1))


def _edge(dtype: str, files: int) -> Iterator[Machine]:
    """Of one pool: machines whose figures lie about a threshold, on either side."""
    usual, other = _engine("transformers", 1, 64, dtype), DTYPES[1 - DTYPES.index(dtype)]
    exact = dtype == FLOAT32
    for strength in (2e-5, 3e-5, 5e-5) if exact else (0.003, 0.005, 0.007):
        yield Machine("edge", dtype, usual, files, "weights-noise", strength)
    yield Machine("edge", dtype, usual, files, "temperature", 0.9998 if exact else 0.7)
    yield Machine("edge", dtype, usual, files, stale=(FINE, 1) if exact else (COARSE, 1))
    if not exact:
        yield Machine("edge", dtype, usual, files, "weights-int8")
        yield Machine("edge", dtype, usual.model_copy(update={"dtype": other}), files)


SLICES = (0.2, 1.0)
MAKER = Station("make", ("make",), _engine("transformers", 2, 64))
REHEARSAL = Station("rehearsal", ("rehearse",), _engine("transformers", 1, 64))
SEAT = Station("seat-threads", ("seat",), _engine("transformers", 2, 16))
PLACES = (
    MAKER,
    *(Station(f"vllm-{dtype}", ("make", "seat"), _engine("vllm", 1, 64, dtype), (dtype,)) for dtype in DTYPES),
    REHEARSAL,
    SEAT,
    *(Station(f"seat-vllm-{dtype}", ("seat",), _engine("vllm", 2, 16, dtype), (dtype,)) for dtype in DTYPES),
)
"""A committee of three: transformers on two threads, and two of vLLM, which is what `validator up` takes where it is
installed. vLLM's seat of batch 64 is served by the process that makes vLLM's files: it starts for a minute."""
WITHOUT_VLLM = (
    MAKER,
    REHEARSAL,
    SEAT,
    Station("seat-small", ("seat",), _engine("transformers", 1, 5)),
    Station("seat-large", ("seat",), _engine("transformers", 1, 128)),
)
QUICK_PLACES = (Station("rehearsal", ("make", "rehearse"), _engine("transformers", 1, 64)), SEAT)
