"""The checks of `muster doctor`: machine, profile, chain, the pool's service and storage, keys and money.

A check raises nothing: what cannot be looked at is a failure. Judging what was measured is pure.
"""

import os
import platform
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from chain.abi import ABI_FOLDER, ARTIFACTS_FOLDER, CONTRACTS
from cli.hardware import Gpu, device_files, existing, gpus, torch_devices
from cli.output import seconds
from localnet.ports import is_free
from localnet.services.chain import find_anvil
from localnet.services.swift_conf import check_attributes
from protocol.encoding import show_tokens
from protocol.errors import ConfigError, IntegrityError, MusterError, UnreachableError, first_line
from protocol.files import check_private

if TYPE_CHECKING:
    from cli.profile import Profile
    from runtime.diagnose import ServiceFacts
    from storage.weights.manifest import Manifest

GIB, _MIB, _ETHER = 1 << 30, 1 << 20, 10**18
_LOCAL_CHAIN = 31337
_SLOWEST = 0.25 * _MIB
_SETUP = "run `make setup`"
# Gas of ten lanes of a voter or relayed by a service, of registering or bonding once. A node needs none.
_GAS = {
    "operator": 700_000,
    "validator": 500_000,
    "voter": 1_250_000,
    "owner": 2_000_000,
    "service": 10_000_000,
}


@dataclass(frozen=True)
class Check:
    """What one check found. `state` is ok, failed, or note (worth knowing, nothing to do); `hint` is the cure."""

    check: str
    state: str
    detail: str
    hint: str = ""

    def line(self) -> str:
        mark = {"ok": "ok    ", "failed": "FAILED", "note": "note  "}[self.state]
        return f"{mark}  {self.check:<12} {self.detail}" + (f"; {self.hint}" if self.hint else "")


def ok(check: str, detail: str) -> Check:
    return Check(check, "ok", detail)


def failed(check: str, detail: str, hint: str) -> Check:
    return Check(check, "failed", detail, hint)


def note(check: str, detail: str) -> Check:
    return Check(check, "note", detail)


def ok_if(good: bool, check: str, detail: str, hint: str) -> Check:
    return ok(check, detail) if good else failed(check, detail, hint)


def judged(check: str, look: Callable[[], object], said: str = "") -> Check:
    """Turn a MusterError that `look` raises into a failure; else what is `said`, or what it returned, is an ok."""
    try:
        found = look()
    except MusterError as error:
        return failed(check, error.what, error.hint)
    return ok(check, said or str(found))


# Machine


def machine(data: Path, ports: Sequence[int]) -> Iterator[Check]:
    """Check Python, Foundry's anvil, built contracts, file system and ports."""
    version = platform.python_version()
    if (3, 11) <= sys.version_info[:2] <= (3, 13):
        yield ok("python", f"{version} at {sys.executable}")
    else:
        yield failed("python", f"{version} runs this, 3.11 to 3.13 are supported", "make PYTHON=python3.11 setup")
    yield judged("anvil", find_anvil)
    missing = [name for name in CONTRACTS if not (ABI_FOLDER / f"{name}.json").exists()]
    if missing:
        yield failed("contracts", f"no ABI of {', '.join(missing)} in {ABI_FOLDER}", "install muster again")
    elif not all((ARTIFACTS_FOLDER / f"{name}.sol" / f"{name}.json").exists() for name in CONTRACTS):
        yield failed("contracts", "the contracts are not compiled", _SETUP)
    else:
        yield ok("contracts", "compiled")
    folder = existing(data)
    yield judged("xattrs", lambda: check_attributes(folder), f"user attributes work in {folder}")
    taken = [port for port in ports if not is_free(port)]
    what = f"{'in use' if taken else 'free'}: {', '.join(map(str, taken or ports))}"
    what = what if ports else "none asked for (--port)"
    yield ok_if(not taken, "ports", what, "stop what uses them or choose other ports")


def isolation(image: str) -> Check:
    """Say what `isolation = "auto"` comes to here, and why nothing stronger. `image`: what containers run."""
    from sandbox.launch import choose
    from sandbox.policy import Mode

    choice = choose("auto", image)
    reasons = "; ".join(f"{mode.value}: {why}" for mode, why in choice.why_not.items())
    if choice.mode is Mode.PLAIN:
        cure = "apt-get install bubblewrap, or podman and an image"
        return note("isolation", f"a worker would not be kept apart from this machine ({reasons}); {cure}")
    limits = "" if choice.accounting else ", limits per process only: no cgroup can be made"
    return ok("isolation", f"{choice.mode.value} works{limits}" + (f" ({reasons})" if reasons else ""))


def disk(folder: Path) -> Check:
    """Measure room and speed where a process keeps its data."""
    at = existing(folder)
    try:
        return judge_disk(at, shutil.disk_usage(at).free, write_speed(at))
    except OSError as error:
        return failed("disk", f"cannot write in {at}: {error.strerror}", "check its permissions and its room")


def write_speed(folder: Path) -> float:
    """Return bytes a second, synced, of at most 32 MiB or three seconds. Raises OSError."""
    piece, written = os.urandom(4 * _MIB), 0
    with tempfile.TemporaryFile(dir=folder) as file:
        started = time.monotonic()
        while written < 32 * _MIB and time.monotonic() - started < 3.0:
            file.write(piece)
            file.flush()
            os.fsync(file.fileno())
            written += len(piece)
        return written / max(1e-6, time.monotonic() - started)


def judge_disk(folder: Path, free: int, speed: float) -> Check:
    """Judge free bytes, and bytes written a second."""
    what = f"{folder}: {free / GIB:.1f} GiB free, written at {speed / _MIB:.0f} MiB/s"
    if free < 5 * GIB:
        return failed("disk", what, "free 5 GiB, or name another folder in the profile's `home`")
    if speed < 20 * _MIB:
        return failed("disk", what, "use a disk that takes 20 MiB/s")
    return ok("disk", what)


# Hardware and engines


def hardware(device: str) -> Iterator[Check]:
    """Check memory, engines, the precision of float32 products, and the GPU that the profile names."""
    import psutil

    from engines.runtime import vllm_installed
    from environments.conformance import quick_check

    memory, cores = psutil.virtual_memory(), len(os.sched_getaffinity(0))
    what = f"{memory.total / GIB:.1f} GiB, {memory.available / GIB:.1f} GiB free; {cores} cores"
    yield ok_if(memory.total >= 2 * GIB, "memory", what, "a node needs 2 GiB at least")
    engines = ["transformers"] * bool(find_spec("torch") and find_spec("transformers")) + ["vllm"] * vllm_installed()
    yield ok_if(bool(engines), "engine", ", ".join(engines) or "no inference engine is installed", _SETUP)
    if not engines:
        return
    torch = torch_devices()
    what = "; ".join(torch["imprecise"]) or "float32 products are computed in full precision"
    yield ok_if(not torch["imprecise"], "precision", what, "a pool in float32 would refuse its files")
    yield judge_gpu(device, gpus(), torch["gpus"], torch["build"])
    yield judged("scoring", quick_check, "this machine scores as every other")


def judge_gpu(device: str, cards: Sequence[Gpu], usable: int, build: str) -> Check:
    """Judge the GPUs. `device`: what the profile computes on; `usable`: the GPUs that torch can use; `build`: torch's
    version and, if it is one for GPUs, CUDA's."""
    names = ", ".join(f"{one.name} ({one.memory / GIB:.0f} GiB, driver {one.driver})" for one in cards) or "none"
    if device == "cpu":
        return note("gpu", f"{names}; the profile computes on the CPU") if cards else ok("gpu", "none, none is wanted")
    if not cards:
        seen = f"{', '.join(device_files())} are there, but " if device_files() else ""
        what = f"the profile wants {device}, {seen}no driver answers, or CUDA_VISIBLE_DEVICES hides every card"
        return failed("gpu", what, "install NVIDIA's driver with nvidia-smi, correct the variable, or set cpu")
    if " " not in build:
        what = f"{names}; torch {build or 'is not installed or'} is a build without CUDA"
        return failed("gpu", what, "run `make setup` on this machine, or `uv sync --extra cuda` in its environment")
    what = f"{names}; torch can use {usable}" if usable else f"{names}; torch {build} cannot use it"
    return ok_if(usable > 0, "gpu", what, "install torch's build for CUDA that the driver supports")


def serving(service: str) -> Check:
    """Say what this machine can serve of a pool's model, by the pool's documents alone."""
    import psutil

    from cli.pool.document import fetch_pool_config, service_objects
    from cli.run.capacity import ModelShape, capacity
    from cli.session import ask_service
    from protocol.api.endpoints import POOL
    from protocol.encoding import parse_json

    try:
        config = fetch_pool_config(service, bytes.fromhex(ask_service(service, POOL).config_hash))
        # Files of a later step may be published as deltas alone, but its model is the first one's.
        manifest = published_manifest(service, min)
        if manifest is None:
            return note("serves", "the pool has published no weights yet")
        with service_objects(service, 20.0) as objects:
            parts = [file.shards for file in manifest.files if file.name == "config.json"]
            document = parse_json(b"".join(objects(shard.key, shard.size) for shards in parts for shard in shards))
        stored = sum(file.size for file in manifest.files if file.name.endswith(".safetensors"))
        shape = ModelShape.of(document, stored, manifest.dtype, config.model.dtype)
    except MusterError as error:
        return failed("serves", error.what, error.hint or "see whether the pool's service is up")
    except ValueError:
        return failed("serves", "the pool's model has no config.json that is one", "tell the pool's owner")
    length = config.work.max_prompt_tokens + config.work.max_new_tokens
    fits, what = capacity(shape, gpus(), psutil.virtual_memory().total, length)
    return ok_if(fits, "serves", what, "use cards with more memory, more cards together, or a pool of a smaller model")


# Chain


@dataclass(frozen=True)
class RpcLook:
    """What an endpoint said: seconds that each answer `took`; Unix times of its newest block and of the question."""

    url: str
    chain_id: int
    block_time: int
    took: tuple[float, ...]
    asked: float


def deployment(path: Path) -> tuple[Check, str | None, int | None]:
    """Check a deployment file; also return an RPC URL and the chain id that it names."""
    from cli.session import deployment_rpc, load_deployment

    try:
        suite = load_deployment(path)
    except MusterError as error:
        return failed("deployment", error.what, error.hint), None, None
    found = ok("deployment", f"{path}: {suite.network}, chain {suite.chain_id}")
    try:
        return found, ",".join(deployment_rpc(suite, None)), suite.chain_id
    except MusterError:
        return found, None, suite.chain_id


def rpc_checks(urls: str | None, expected: int | None) -> tuple[list[Check], RpcLook | None]:
    """Check every endpoint of `urls` (commas between them); also return the first that answers for chain `expected`."""
    if not urls:
        return [note("rpc", "none named (--rpc or --deployment)")], None
    checks, best = [], None
    for url in filter(None, map(str.strip, urls.split(","))):
        try:
            answer = ask_rpc(url, expected)
        except MusterError as error:
            checks.append(failed("rpc", error.what, error.hint))
            continue
        if expected in (None, answer.chain_id):
            best = best or answer
        checks.append(judge_rpc(answer, expected))
    return checks, best


def ask_rpc(url: str, expected: int | None) -> RpcLook:
    """Ask an endpoint five times for its chain, then for its newest block. Raises ConfigError, UnreachableError."""
    import httpx

    from protocol.encoding import parse_json
    from protocol.http.transport import bounded_transport

    client = httpx.Client(transport=bounded_transport(), timeout=5.0, trust_env=False)

    def call(method: str, *params: Any) -> Any:
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": list(params)}
        answer = client.post(url, json=body)
        answer.raise_for_status()
        return parse_json(answer.content)["result"]

    took, block_time = [], 0
    try:
        for _ in range(5):
            started = time.monotonic()
            chain_id = int(call("eth_chainId"), 16)
            took.append(time.monotonic() - started)
        if expected in (None, chain_id):
            block_time = int(call("eth_getBlockByNumber", "latest", False)["timestamp"], 16)
    except httpx.InvalidURL as error:
        raise ConfigError(f"{url} is not a URL: {error}", "write http://host:port") from None
    except httpx.HTTPStatusError as error:
        raise UnreachableError(f"the RPC {url} answers {error.response.status_code}", "check the URL") from None
    except httpx.HTTPError as error:
        words = str(error) or type(error).__name__
        raise UnreachableError(f"the RPC {url} does not answer ({words})", "start it or correct the URL") from None
    except (KeyError, TypeError, ValueError):
        raise ConfigError(f"{url} is not an Ethereum RPC", "check the URL") from None
    finally:
        client.close()
    return RpcLook(url, chain_id, block_time, tuple(took), time.time())


def judge_rpc(answer: RpcLook, expected: int | None) -> Check:
    """Judge chain, age and latency. A local chain makes blocks when it likes."""
    if expected is not None and answer.chain_id != expected:
        what = f"{answer.url} is chain {answer.chain_id}, expected {expected}"
        return failed("rpc", what, "name the RPC of the right chain")
    latency, age = statistics.median(answer.took), answer.asked - answer.block_time
    what = f"{answer.url} answers in {latency * 1000:.0f} ms, chain {answer.chain_id}"
    if age > 60.0 and answer.chain_id != _LOCAL_CHAIN:
        hint = "use another endpoint; if all say so, the chain stands still or this clock is ahead"
        return failed("rpc", f"{what}, but its newest block is {seconds(age)} old", hint)
    if latency > 1.0:
        return failed("rpc", f"{what}, too slowly", "use an endpoint that is nearer or less busy")
    return ok("rpc", f"{what}, newest block {seconds(max(0.0, age))} old")


def judge_clock(block: RpcLook | None, offset: float | None) -> Check:
    """Judge this clock, `offset` seconds ahead of the service's. A local chain's time is its own."""
    cure = "set it by the network: timedatectl set-ntp true"
    age = block.asked - block.block_time if block is not None and block.chain_id != _LOCAL_CHAIN else None
    if offset is not None and abs(offset) > 5.0:
        way = "ahead of" if offset > 0 else "behind"
        return failed("clock", f"it is {abs(offset):.0f} s {way} the service's", cure)
    if age is not None and age < -30.0:
        return failed("clock", f"the chain's newest block is {-age:.0f} s in its future", cure)
    if offset is not None:
        return ok("clock", f"{abs(offset):.0f} s off the service's, at most 5 are allowed")
    if age is not None:
        return ok("clock", f"the chain's newest block is {age:.0f} s old by it")
    return note("clock", "nothing to compare it with (--pool URL, or the RPC of a public chain)")


# The pool's service and bucket


def service_checks(url: str | None) -> tuple[list[Check], "ServiceFacts | None"]:
    """Ask the pool's service what it says of itself; its facts are None if it does not answer."""
    from protocol import VERSION
    from runtime.diagnose import ServiceView

    if not url:
        return [note("service", "none named (--pool URL)")], None
    try:
        with closing(ServiceView(url, allow_private=True)) as view:
            facts = view.look()
    except MusterError as error:
        unknown = note("version", f"muster {VERSION}; the service's is unknown")
        return [failed("service", error.what, error.hint or "start it, or correct the URL"), unknown], None
    checks = [ok("service", f"{url} answers")]
    if not facts.ready:
        checks = [failed("service", f"the database of {url} does not answer", "start the database; nothing is lost")]
    elif facts.problems:
        checks = [failed("service", f"{url} reports: {'; '.join(facts.problems)}", "its log says more")]
    return [*checks, judge_version(VERSION, facts.version)], facts


def judge_version(ours: str, theirs: str) -> Check:
    """Refuse versions that differ in more than their last number: they may not understand one another."""
    same = ours.split(".")[:2] == theirs.split(".")[:2]
    return ok_if(same, "version", f"muster {ours}, the pool's service {theirs}", f"install muster {theirs}")


def bucket(path: Path) -> str:
    from protocol.encoding import load_document
    from storage.s3 import Bucket, S3Settings

    settings = load_document(path, S3Settings)
    next(iter(Bucket(settings).list("manifests/")), None)
    return f"bucket {settings.bucket} at {settings.endpoint} can be read"


def storage(service: str) -> Check:
    """Measure how fast a piece of the newest weights comes, for at most 16 MiB or five seconds."""
    import httpx

    from protocol.api.endpoints import OBJECTS
    from protocol.http.transport import bounded_transport

    try:
        key = newest_shard(service)
    except MusterError as error:
        return failed("storage", error.what, error.hint or "see whether the pool's service is up")
    if key is None:
        return note("storage", "the pool has published no weights yet")
    size, url = 0, f"{service.rstrip('/')}{OBJECTS}/{key}"
    try:
        with (
            httpx.Client(transport=bounded_transport(), timeout=20.0, follow_redirects=True, trust_env=False) as client,
            client.stream("GET", url) as answer,
        ):
            answer.raise_for_status()
            started = time.monotonic()
            for chunk in answer.iter_bytes():
                size += len(chunk)
                if size >= 16 * _MIB or time.monotonic() - started > 5.0:
                    break
            return judge_storage(size, time.monotonic() - started)
    except httpx.HTTPError as error:
        return failed("storage", first_line(error), "see whether the pool's bucket can be reached from here")


def judge_storage(size: int, taken: float) -> Check:
    """Judge bytes and seconds. What is too small to time says nothing."""
    speed = size / max(taken, 1e-6)
    what = f"weights come at {speed / _MIB:.1f} MiB/s ({size / _MIB:.1f} MiB)"
    hint = f"use a connection of {_SLOWEST / _MIB:g} MiB/s at least"
    return ok_if(size < _MIB or speed >= _SLOWEST, "storage", what, hint)


def newest_shard(service: str) -> str | None:
    """Return the key of a shard that the newest policy step stored: of its full weights if it is a snapshot, else of
    its delta. Raises UnreachableError, IntegrityError, ConfigError."""
    manifest = published_manifest(service, max)
    try:
        if manifest is None:
            return None
        if manifest.snapshot or not manifest.deltas:
            return max(manifest.files, key=lambda file: file.size).shards[0].key
        return manifest.deltas[0].files[0].shards[0].key
    except IndexError:
        raise IntegrityError("the newest weights' manifest is not one", "tell the pool's owner") from None


def published_manifest(service: str, choose: Callable[..., Any]) -> "Manifest | None":
    """Return the manifest of the first policy step (`choose`: min) or the newest (max) as its service has it; None
    where there is none yet. Raises UnreachableError, IntegrityError, ConfigError."""
    from cli.pool.document import service_objects
    from cli.session import ask_service
    from protocol.api.endpoints import DASHBOARD
    from protocol.encoding import parse_json
    from storage.keys import object_key
    from storage.weights.manifest import MAX_STORED_BYTES, SignedManifest

    published = [one for one in ask_service(service, DASHBOARD).published if one.manifest]
    if not published:
        return None
    try:
        digest = bytes.fromhex(choose(published, key=lambda one: one.step).manifest)
        with service_objects(service, 20.0) as objects:
            stored = parse_json(objects(object_key("manifests", digest), MAX_STORED_BYTES))
        return SignedManifest.model_validate(stored).manifest
    except ValueError:
        raise IntegrityError("the newest weights' manifest is not one", "tell the pool's owner") from None


# The profile's keys, money and promises


def profile_keys(profile: "Profile") -> Iterator[Check]:
    """Check every key file of the profile and its password file."""
    for _, key in profile.named_keys():
        yield keystore(key.keystore)
        if key.keystore.exists() and (path := key.password_file) is not None:
            yield judged("password", partial(check_private, path, "password file "), f"{path} is private")


def keystore(path: Path) -> Check:
    """Check a key file. One that is not there is no failure: the first `up` makes it."""
    from runtime.keystore import address_of

    if not path.exists():
        return note("keystore", f"{path} is not there yet (muster node up, validator up or init owner make it)")
    readable = judged("keystore", lambda: address_of(path))
    if readable.state != "ok":
        return readable
    if path.stat().st_mode & 0o077:
        return failed("keystore", f"{path} is open to other users", f"chmod 600 {path}")
    return ok("keystore", f"{path} holds {readable.detail}")


def cached_weights(folder: Path) -> Check:
    """Compare every complete policy step in the cache with its manifest."""
    from storage.weights.cache import WeightCache

    if not folder.is_dir():
        return note("cache", f"{folder} is not there yet, it is made when needed")
    cache = WeightCache(folder)
    manifests = {digest.hex()[:12]: cache.manifest(digest) for digest in cache.versions()}
    damaged = [name for name, manifest in manifests.items() if manifest is None or not cache.is_intact(manifest)]
    what = f"damaged policy steps: {', '.join(damaged)}" if damaged else f"{len(manifests)} policy steps intact"
    return ok_if(not damaged, "cache", f"{what} in {folder}", "remove their folders there; they are fetched again")


def pool_config(path: Path) -> str:
    """Describe a pool's configuration. Raises ConfigError for one that no pool can have."""
    from protocol.config import PoolConfig

    config = PoolConfig.load(path)
    if config.work.rows > 65535:
        raise ConfigError(f"{path}: a file has {config.work.rows} rollouts, at most 65535 fit", "make files smaller")
    return f"{path}: {config.name}, SHA-256 {config.digest.hex()}"


def validator_checks(profile: "Profile") -> Iterator[Check]:
    """Check whether a validator shows the files that it accepts, and with which engines it judges node challenges."""
    from runtime.process import EngineConfig
    from validator.judging.pipeline import others

    if profile.role != "validator":
        return
    shown = [field for field in ("serve", "republish") if field in profile.validator]
    if shown:
        yield ok("retained files", f"shown by `{shown[0]}`")
    else:
        yield note("retained files", "nobody is shown them: name `serve` or `republish` in [validator]")
    own = profile.engine.name
    if besides := [one.name for one in others(EngineConfig(name=own))]:
        yield ok("engines", f"{own} for every file, {', '.join(besides)} for its files in node challenges")
    else:
        yield note("engines", f"{own} alone: small cheats with another engine are not seen")


def money(profile: "Profile") -> Iterator[Check]:
    """Check the gas of every key, and an operator's stake, by the chain."""
    from cli.session import open_session
    from runtime.keystore import address_of

    try:
        session = open_session(profile.deployment, profile.rpc)
        price, joined = session.client.gas_price(), False
        if profile.node and profile.node.keystore.exists() and profile.pool:
            node, least = address_of(profile.node.keystore), session.suite.court.terms_of(profile.pool).minStake
            known = session.suite.stakes.node_of(node)
            joined = known.pool != 0
            yield judge_stake(node, known.stake, least)
        for name, key in profile.named_keys():
            # An operator whose node has joined sends nothing more: the service claims for it.
            if key.keystore.exists() and name in _GAS and not (joined and name == "operator"):
                address = address_of(key.keystore)
                yield judge_gas(name, address, session.client.balance(address), _GAS[name] * price)
    except MusterError as error:
        yield failed("gas", f"cannot be asked: {error.what}", error.hint)


def judge_gas(name: str, address: str, wei: int, needs: int) -> Check:
    """Judge wei: enough for a while, or what to send where."""
    what = f"the {name}'s key {address} has {wei / _ETHER:.6f} ETH"
    return ok_if(wei >= needs, "gas", what, f"send it {(needs - wei) / _ETHER:.6f} ETH")


def judge_stake(node: str, stake: int, least: int) -> Check:
    """Compare the stake with the pool's least, in base units."""
    what = f"node {node} has {show_tokens(stake)} tokens at stake, the pool wants {show_tokens(least)}"
    return ok_if(stake >= least, "stake", what, "muster node up, or muster node join --stake")
