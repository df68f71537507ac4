"""How each fault is really made in a network, and undone."""

import os
import re
import shutil
import socket
import time
from pathlib import Path
from typing import Any

import boto3
from botocore.config import Config

from benchmarks.fault import Fault
from benchmarks.fault_network import CHEATER, HONEST, WORKER, FaultNetwork
from chain.indexer.state import Standing, standing_of
from localnet.onboarding import CONSENT_SECONDS
from localnet.plan import POOL
from protocol.amounts import TOKEN
from protocol.errors import MusterError
from storage.s3 import Bucket, S3Settings

ETHER = 10**18
EVE = "eve"


def owner(network: FaultNetwork) -> tuple[Path, str]:
    return network.owner(), "pool"


# ---- The machine


def fill_disk(fault: Fault, network: FaultNetwork) -> None:
    network.disk.fill()


def empty_disk(fault: Fault, network: FaultNetwork) -> None:
    network.disk.empty()


def prepare_clock(fault: Fault, network: FaultNetwork) -> None:
    """Worker, watch and status with a clock that can be moved: by the launcher, because Python's sleep fails under
    libfaketime 0.9.10."""
    file = network.plan.root / "clock"
    file.write_text("+0")
    fault.environment = {"MUSTER_FAULT_CLOCK": str(file)}
    fault.kept["clock"] = file
    for name in (WORKER, "watch") if network.computes else ("watch",):
        network.hold(name)
        network.release(name, **fault.environment)
    before, looks = network.files(), network.looks()
    moved = (lambda: network.files() > before) if network.computes else (lambda: network.looks() > looks)
    network.wait("work with a clock that can be moved", moved, 300)


def set_clock(by: str, fault: Fault, network: FaultNetwork) -> None:
    fault.kept["clock"].write_text(by)


# ---- What lies elsewhere


def hold(name: str, fault: Fault, network: FaultNetwork) -> None:
    network.hold(name)


def release(name: str, fault: Fault, network: FaultNetwork) -> None:
    network.release(name)


def kill_database(fault: Fault, network: FaultNetwork) -> None:
    assert network.postgres is not None
    os.kill(network.postgres.get_pid() or 0, 9)


def start_database(fault: Fault, network: FaultNetwork) -> None:
    """Its old processes take a moment to end."""
    for _ in range(20):
        try:
            assert network.postgres is not None
            network.postgres.ensure_postgres_running()
            return
        except (AssertionError, OSError, RuntimeError, ValueError):
            time.sleep(1)
        except Exception as error:  # pg_ctl's own
            fault.kept["last"] = str(error)
            time.sleep(1)
    raise MusterError("PostgreSQL does not start again", str(fault.kept.get("last", "")))


def take_port(fault: Fault, network: FaultNetwork) -> None:
    """Somebody else's program listens where the service did."""
    network.hold("orchestrator")
    taken = socket.socket()
    taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    taken.bind(("127.0.0.1", network.plan.http_port))
    taken.listen()
    fault.kept["socket"] = taken
    network.release("orchestrator")


def give_port_back(fault: Fault, network: FaultNetwork) -> None:
    fault.kept["socket"].close()


def other_version(version: str, fault: Fault, network: FaultNetwork) -> None:
    network.hold("orchestrator")
    network.release("orchestrator", **({"MUSTER_FAULT_VERSION": version} if version else {}))


# ---- Money and keys


def drain(fault: Fault, network: FaultNetwork) -> None:
    network.set_ether(network.ring[f"node-{HONEST}"].address, 10**11)


def refuel(fault: Fault, network: FaultNetwork) -> None:
    network.set_ether(network.ring[f"node-{HONEST}"].address, 100 * ETHER)


def register_too_low(fault: Fault, network: FaultNetwork) -> None:
    """A node with half of what the pool wants."""
    operator, node, deployer = network.ring[f"operator-{EVE}"], network.ring[f"node-{EVE}"], "deployer"
    for key in (operator, node):
        network.set_ether(key.address, 100 * ETHER)
    stake = network.state().pools[POOL].terms.minStake
    network.onboarding.suite(deployer).token.mint(operator.address, stake + 100 * TOKEN).send()
    suite = network.onboarding.suite(f"operator-{EVE}")
    expiry = suite.client.now() + CONSENT_SECONDS
    consent = suite.stakes.sign_consent(node.account, operator.address, expiry)
    suite.stakes.register_node(node.address, stake // 2, expiry, consent).send()
    fault.kept["lacks"] = stake - stake // 2
    network.start_watch("watch-eve", network.watch_values(EVE))


def add_stake(fault: Fault, network: FaultNetwork) -> None:
    suite, node = network.onboarding.suite(f"operator-{EVE}"), network.ring[f"node-{EVE}"]
    suite.stakes.deposit(node.address, fault.kept["lacks"]).send()


def name_other_key(fault: Fault, network: FaultNetwork) -> None:
    court = network.onboarding.suite("owner").court
    court.set_service(POOL, network.ring["spare"].address).send()


def name_key_again(fault: Fault, network: FaultNetwork) -> None:
    """A second change is refused as long as receipts of the key before the first one hold."""
    suite, until = network.onboarding.suite("owner"), network.state().pools[POOL].previous_until
    network.wait("the first change to be old enough", lambda: suite.client.now() >= until, 300)
    suite.court.set_service(POOL, network.ring["service"].address).send()


# ---- Computation


def prepare_device(fault: Fault, network: FaultNetwork) -> None:
    file = network.plan.root / "device-hangs"
    fault.kept["device"] = file
    network.hold(WORKER)
    network.release(WORKER, MUSTER_FAULT_DEVICE=str(file))
    log = network.plan.log(WORKER)
    begun = log.stat().st_size
    made = re.compile(rb"file \d+ of step")
    network.wait("two files by the stand-in", lambda: len(made.findall(log.read_bytes()[begun:])) > 1, 300)


def hang_device(fault: Fault, network: FaultNetwork) -> None:
    fault.kept["device"].touch()


def free_device(fault: Fault, network: FaultNetwork) -> None:
    fault.kept["device"].unlink()


def corrupt_weights(fault: Fault, network: FaultNetwork) -> None:
    """Every shard in the bucket is damaged, and the worker has to fetch: its cache is lost. There from when it met
    them."""
    network.hold("trainer")
    network.hold(WORKER)
    shutil.rmtree(network.plan.home(WORKER) / "weights", ignore_errors=True)
    bucket = Bucket(network.network.s3_settings())
    fault.kept["shards"] = {key: bucket.get(key) for key in bucket.list("shards/")}
    store(bucket.settings, {key: data[:-1] + bytes([data[-1] ^ 1]) for key, data in fault.kept["shards"].items()})
    log = network.plan.log(WORKER)
    begun = log.stat().st_size
    network.release(WORKER)
    network.wait("damaged shards", lambda: b"shards/" in log.read_bytes()[begun:], 120)


def mend_weights(fault: Fault, network: FaultNetwork) -> None:
    store(network.network.s3_settings(), fault.kept["shards"])
    network.release("trainer")


def store(settings: S3Settings, objects: dict[str, bytes]) -> None:
    """As whoever holds the bucket's key can: whatever their names promise."""
    access = settings.access()
    client: Any = boto3.client(
        "s3",
        endpoint_url=settings.endpoint,
        aws_access_key_id=access.access_key,
        aws_secret_access_key=access.secret_key,
        region_name=settings.region,
        config=Config(s3={"addressing_style": "path"}),
    )
    for key, data in objects.items():
        client.put_object(Bucket=settings.bucket, Key=key, Body=data)


# ---- Judgements


def cheat(fault: Fault, network: FaultNetwork) -> None:
    """The cheater works, until a file of its is refused."""
    if f"worker-{CHEATER}" not in network.network.supervisor.children:
        network.start_watch("watch-mallory", network.watch_values(CHEATER))
        with network.alone() as processes:
            processes.start_worker(POOL, network.plan.nodes[1])
    network.wait("a refused file", lambda: standing(network) in (Standing.FROZEN, Standing.EJECTED), 300)


def standing(network: FaultNetwork) -> Standing:
    return standing_of(network.state().accounts.get((POOL, network.ring[f"node-{CHEATER}"].address)))


def let_it_pass(fault: Fault, network: FaultNetwork) -> None:
    """Nobody undoes it: a freeze ends with the challenge window."""


def wait_for_slash(fault: Fault, network: FaultNetwork) -> None:
    cheat(fault, network)
    network.wait("the slash", lambda: any(one.kind == "node" for one in network.state().slashes), 300)


def mallory(network: FaultNetwork) -> tuple[Path, str]:
    return network.operator(CHEATER), "node"


def eve(network: FaultNetwork) -> tuple[Path, str]:
    return network.operator(EVE), "node"


def thawed(fault: Fault, network: FaultNetwork) -> bool:
    return standing(network) is not Standing.FROZEN
