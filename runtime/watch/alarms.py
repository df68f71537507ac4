"""Which alarms a look at the facts raises, each with its cure. Pure."""

from collections.abc import Iterator
from dataclasses import dataclass

from chain.standing import Standing
from protocol.amounts import show_tokens
from protocol.version import VERSION
from runtime.watch.config import WatchConfig, WatchLimits
from runtime.watch.facts import Facts, ServiceFacts, WatchedPool

_GIB = 1 << 30
_OLD_HEAD_SECONDS = 120.0
_START = "see its log and exit code; start it"
_DEVICE = "look at the GPU (nvidia-smi), then start the process again; it ends by itself after ten minutes"


@dataclass(frozen=True)
class Alarm:
    """`name` is one of NAMES; `what` is wrong, `cure` what to do."""

    name: str
    what: str
    cure: str


NAMES = (
    "disk_full",
    "clock_wrong",
    "chain_lost",
    "chain_stale",
    "service_lost",
    "database_lost",
    "service_trouble",
    "storage_lost",
    "version_behind",
    "gas_low",
    "stake_low",
    "stake_frozen",
    "ejected",
    "seat_out",
    "key_stale",
    "process_gone",
    "process_in_trouble",
    "process_stalled",
    "run_stalled",
    "training_unstable",
)


def alarms(config: WatchConfig, facts: Facts) -> list[Alarm]:
    """In the order of NAMES. What could not be asked raises its own alarm and no other."""
    found = [*_machine(config, facts), *_chain(config, facts)]
    if facts.process_gone:
        found.append(Alarm("process_gone", facts.process_gone, _START))
    found += _stalled(facts)
    if facts.service_error:
        cure = f"start it, or ask who runs {config.orchestrator}; files wait meanwhile"
        found.append(Alarm("service_lost", facts.service_error, cure))
    if facts.pool is not None:
        found += _pool(config, facts.pool)
        if not (facts.service and facts.service.finished):
            found += _stall(config, facts.pool, facts.now)
    if facts.service is not None:
        found += _service(config, facts.service, facts)
    return sorted(found, key=lambda alarm: NAMES.index(alarm.name))


def surroundings(limits: WatchLimits, facts: Facts) -> list[Alarm]:
    """What troubles the machine, the service, its storage and the process, without what only the chain can say."""
    service = _service(limits, facts.service, facts) if facts.service is not None else ()
    return sorted([*_machine(limits, facts), *_stalled(facts), *service], key=lambda alarm: NAMES.index(alarm.name))


def _machine(config: WatchLimits, facts: Facts) -> Iterator[Alarm]:
    for name, free in facts.free.items():
        if free is None:
            yield Alarm("disk_full", f"the folder {name} is not there", "mount its disk, or correct `folders`")
        elif free < config.free_gib * _GIB:
            cure = "delete what can be recomputed (caches of weights first), or give it a larger disk"
            yield Alarm("disk_full", f"the disk of {name} has {free / _GIB:.1f} GiB left", cure)


def _chain(config: WatchConfig, facts: Facts) -> Iterator[Alarm]:
    if facts.chain_error:
        yield Alarm("chain_lost", facts.chain_error, "check the network, or name another RPC URL as well")
    elif facts.head_age is not None and facts.head_age > _OLD_HEAD_SECONDS:
        what = f"the chain's newest block is {facts.head_age:.0f} s old"
        yield Alarm("chain_stale", what, "the endpoint lags: name another RPC URL; or set the clock")
    for name, left in facts.transactions_left.items():
        if left < config.transactions:
            what = f"the gas of {name} ({config.accounts[name]}) is enough for {left} transactions"
            yield Alarm("gas_low", what, "send it ether")


def _stalled(facts: Facts) -> Iterator[Alarm]:
    if facts.process_stalled:
        yield Alarm("process_stalled", facts.process_stalled, _DEVICE)


def _pool(config: WatchConfig, pool: WatchedPool) -> Iterator[Alarm]:
    if pool.stake is not None and pool.stake < pool.least_stake:
        what = f"the stake is {show_tokens(pool.stake)}, the pool wants {show_tokens(pool.least_stake)}"
        yield Alarm("stake_low", what, "muster node stake")
    if pool.standing is Standing.FROZEN:
        cure = "see `muster node status` for the file; dispute it in time if you are wronged"
        yield Alarm("stake_frozen", "a file was refused and the stake is frozen until that is final", cure)
    if pool.standing in (Standing.EJECTED, Standing.REMOVED):
        cure = "`muster why` says why; the rest of the stake can be withdrawn"
        yield Alarm("ejected", f"the node was {pool.standing}", cure)
    for seat, why in pool.seats.items():
        if why:
            yield Alarm("seat_out", f"seat {seat} {why}", "muster validator top-up, or bond another")
    if pool.service_key_current is False:
        what = f"the chain does not name {config.service_key} as the service's key"
        yield Alarm("key_stale", what, "muster pool set-service, or start the service with the key that is named")


def _stall(config: WatchConfig, pool: WatchedPool, now: float) -> Iterator[Alarm]:
    if pool.running and pool.step >= 0 and now - pool.step_time > config.stall_seconds:
        what = f"policy step {pool.step} is {now - pool.step_time:.0f} s old"
        yield Alarm("run_stalled", what, "`muster status` says who waits for what")


def _service(config: WatchLimits, service: ServiceFacts, facts: Facts) -> Iterator[Alarm]:
    if abs(service.clock_offset) > config.clock_seconds:
        what = f"this machine's clock is {service.clock_offset:+.0f} s off the service's"
        yield Alarm("clock_wrong", what, "let NTP set it: timedatectl set-ntp true")
    if not service.ready:
        yield Alarm("database_lost", "the service's database does not answer", "start the database; nothing is lost")
    if service.problems:
        yield Alarm("service_trouble", "; ".join(service.problems), "its log says more; see docs/operations.md")
    if facts.storage_error:
        yield Alarm("storage_lost", facts.storage_error, "start the pool's storage; uploads wait meanwhile")
    if service.version and service.version != VERSION:
        what = f"the service is version {service.version}, this one {VERSION}"
        yield Alarm("version_behind", what, "upgrade the older of the two")
    if service.state == "dead":
        if not facts.process_gone:
            yield Alarm("process_gone", "no heartbeat comes from the process", _START)
    elif service.phase == "trouble" or "CANNOT SERVE" in service.phase:
        what = "the process does not get what it needs"
        lacks = f": {service.trouble}" if service.trouble else ""
        yield Alarm("process_in_trouble", what + lacks, "its log names what and the cure")
    elif (
        not facts.process_stalled
        and facts.progressed is not None
        and facts.now - facts.progressed > config.stall_seconds
    ):
        what = f"the process computes and has got nothing done for {facts.now - facts.progressed:.0f} s"
        yield Alarm("process_stalled", what, _DEVICE)
    if service.trainer.startswith("stopped: "):
        yield Alarm("training_unstable", service.trainer.removeprefix("stopped: "), "see docs/training.md, Guards")
