"""The checks of `muster doctor`: machine, profile, chain, the pool's service and storage, keys and money.

A check raises nothing: what cannot be looked at is a failure. Judging what was measured is pure.
"""

import os
import platform
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path

from chain.abi import ABI_FOLDER, ARTIFACTS_FOLDER, CONTRACTS
from chain.client import ChainClient
from cli.hardware import GIB, Gpu, ModelShape, capacity, device_files, existing, torch_devices
from cli.output import seconds
from cli.pool.document import fetch_pool_config, service_objects
from cli.profile import Profile
from cli.session import ask_service, deployment_rpc, load_deployment, open_session
from engines.torch_process import vllm_installed
from environments.conformance import quick_check
from localnet.services.chain import find_anvil
from localnet.services.swift_conf import check_attributes
from protocol.api.endpoints import DASHBOARD, POOL
from protocol.encoding import load_document, parse_json, show_tokens
from protocol.errors import IntegrityError, MusterError
from protocol.files import check_private
from runtime.diagnose import Facts, WatchLimits, free_bytes, look_at_service, surroundings
from runtime.keystore import address_of
from sandbox.policy import Mode
from storage.keys import object_key
from storage.s3 import Bucket, S3Settings
from storage.weights.cache import WeightCache
from storage.weights.manifest import MAX_STORED_BYTES, Manifest, SignedManifest

_ETHER = 10**18
_LOCAL_CHAIN = 31337
_PATIENCE = 5.0
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
    """What one check found. `state` is ok, failed, or note (worth knowing, nothing to do); `hint` says what to do."""

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


def judged(check: str, look: Callable[[], object], detail: str = "") -> Check:
    """Turn a MusterError that `look` raises into a failure; else `detail`, or what it returned, is an ok."""
    try:
        result = look()
    except MusterError as error:
        return failed(check, error.what, error.hint)
    return ok(check, detail or str(result))


# Machine


def machine() -> Iterator[Check]:
    """Check Python, built contracts, and what a network on this machine alone needs: anvil and user attributes."""
    version = platform.python_version()
    if (3, 11) <= sys.version_info[:2] <= (3, 13):
        yield ok("python", f"{version} at {sys.executable}")
    else:
        yield failed("python", f"{version} runs this, 3.11 to 3.13 are supported", "make PYTHON=python3.11 setup")
    missing = [name for name in CONTRACTS if not (ABI_FOLDER / f"{name}.json").exists()]
    if missing:
        yield failed("contracts", f"no ABI of {', '.join(missing)} in {ABI_FOLDER}", "install muster again")
    elif not all((ARTIFACTS_FOLDER / f"{name}.sol" / f"{name}.json").exists() for name in CONTRACTS):
        yield failed("contracts", "the contracts are not compiled", _SETUP)
    else:
        yield ok("contracts", "compiled")
    here = Path.cwd()
    for local in (judged("anvil", find_anvil), judged("xattrs", partial(check_attributes, here), f"work in {here}")):
        lacks = note(local.check, f"only a local network needs it: {local.detail}; {local.hint}")
        yield local if local.state == "ok" else lacks


def isolation(image: str) -> Check:
    """Say what `isolation = "auto"` comes to here, and why nothing stronger. `image`: what containers run."""
    from sandbox.launch import choose

    choice = choose("auto", image)
    reasons = "; ".join(f"{mode.value}: {why}" for mode, why in choice.why_not.items())
    if choice.mode is Mode.PLAIN:
        hint = "apt-get install bubblewrap, or podman and an image"
        return note("isolation", f"a worker would not be kept apart from this machine ({reasons}); {hint}")
    limits = "" if choice.accounting else ", limits per process only: no cgroup can be made"
    return ok("isolation", f"{choice.mode.value} works{limits}" + (f" ({reasons})" if reasons else ""))


def disk(folder: Path) -> Check:
    """Check where a process keeps its data, by the limit of a watch."""
    at = existing(folder)
    if not os.access(at, os.W_OK):
        return failed("disk", f"cannot write in {at}", "check its permissions, or name another `home` in the profile")
    free = free_bytes(at) or 0
    full = surroundings(WatchLimits(), Facts(time.time(), free={str(at): free}))
    return failed("disk", full[0].what, full[0].hint) if full else ok("disk", f"{at}: {free / GIB:.1f} GiB free")


# Hardware and engines


def hardware(device: str) -> Iterator[Check]:
    """Check memory, engines, the precision of float32 products, and the cards if `device` needs one."""
    import psutil

    memory, cores = psutil.virtual_memory(), len(os.sched_getaffinity(0))
    what = f"{memory.total / GIB:.1f} GiB, {memory.available / GIB:.1f} GiB free; {cores} cores"
    yield ok_if(memory.total >= 2 * GIB, "memory", what, "a node needs 2 GiB at least")
    engines = ["transformers"] * bool(find_spec("torch") and find_spec("transformers")) + ["vllm"] * vllm_installed()
    yield ok_if(bool(engines), "engine", ", ".join(engines) or "no inference engine is installed", _SETUP)
    if not engines:
        return
    torch = torch_devices()
    what = "; ".join(torch.imprecise) or "float32 products are computed in full precision"
    yield ok_if(not torch.imprecise, "precision", what, "a pool in float32 would refuse its files")
    yield judge_gpu(device, torch.gpus, torch.build)
    yield judged("scoring", quick_check, "this machine scores as every other")


def judge_gpu(device: str, cards: Sequence[Gpu], build: str) -> Check:
    """Judge the cards that torch can use. `device`: what the profile computes on; `build`: torch's version and, if it
    is one for cards, CUDA's."""
    names, files = ", ".join(f"{card.name} ({card.memory / GIB:.0f} GiB)" for card in cards), ", ".join(device_files())
    if device == "cpu":
        seen = names or files
        return note("gpu", f"{seen}; the profile computes on the CPU") if seen else ok("gpu", "none, none is wanted")
    shown = os.environ.get("CUDA_VISIBLE_DEVICES")
    hidden = "" if shown is None else f"CUDA_VISIBLE_DEVICES={shown} shows {len(cards)} of {len(device_files())}"
    if cards and len(device_files()) > len(cards) and hidden:
        return note("gpu", f"torch can use {names}; {hidden}")
    if cards:
        return ok("gpu", f"torch can use {names}")
    there = f"of {files}" if files else "and no card is here"
    if " " not in build:
        what = f"the profile wants {device}, torch {build or 'is not installed or'} is a build without CUDA"
        return failed("gpu", what, "run `make setup` on this machine, or `uv sync --extra cuda` in its environment")
    what = f"the profile wants {device}, torch {build} can use none {there}" + (f"; {hidden}" if hidden else "")
    hint = "install NVIDIA's driver, and torch's build for its CUDA; correct CUDA_VISIBLE_DEVICES; or set cpu"
    return failed("gpu", what, hint)


def serving(service: str) -> Check:
    """Say what this machine can serve of a pool's model, by the pool's documents alone."""
    import psutil

    try:
        config = fetch_pool_config(service, bytes.fromhex(ask_service(service, POOL).config_hash))
        # Files of a later step may be published as deltas alone, but its model is the first one's.
        manifest = first_manifest(service)
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
    fits, what = capacity(shape, torch_devices().gpus, psutil.virtual_memory().total, length)
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


def chain_checks(path: Path | None, rpc: str | None) -> tuple[list[Check], RpcLook | None]:
    """Check a deployment file and every endpoint of `rpc`, else the file's; also return the first good answer."""
    if path is None:
        return [note("rpc", "no chain is named (--deployment, --rpc)")], None
    try:
        suite = load_deployment(path)
        urls = deployment_rpc(suite, rpc)
    except MusterError as error:
        return [failed("deployment", error.what, error.hint)], None
    checks, best = [ok("deployment", f"{path}: {suite.network}, chain {suite.chain_id}")], None
    for url in urls:
        try:
            answer = ask_rpc(url, suite.chain_id)
        except MusterError as error:
            checks.append(failed("rpc", error.what, error.hint))
            continue
        best = best or answer
        checks.append(judge_rpc(answer))
    return checks, best


def ask_rpc(url: str, chain_id: int) -> RpcLook:
    """Ask an endpoint five times for its newest block. Raises ConfigError for another chain, UnreachableError."""
    took = []
    client = ChainClient([url], chain_id, patience=_PATIENCE, timeout=_PATIENCE)
    with closing(client):
        for _ in range(5):
            started = time.monotonic()
            block = client.head()
            took.append(time.monotonic() - started)
    return RpcLook(url, chain_id, block.time, tuple(took), time.time())


def judge_rpc(answer: RpcLook) -> Check:
    """Judge age and latency. A local chain makes blocks when it likes, and its time is its own."""
    latency, age = statistics.median(answer.took), answer.asked - answer.block_time
    what = f"{answer.url} answers in {latency * 1000:.0f} ms, chain {answer.chain_id}"
    if age > 60.0 and answer.chain_id != _LOCAL_CHAIN:
        hint = "use another endpoint; if all say so, the chain stands still or this clock is ahead"
        return failed("rpc", f"{what}, but its newest block is {seconds(age)} old", hint)
    if age < -30.0 and answer.chain_id != _LOCAL_CHAIN:
        return failed("rpc", f"{what}, its newest block is {-age:.0f} s in this clock's future", "set the clock: NTP")
    if latency > 1.0:
        return failed("rpc", f"{what}, too slowly", "use an endpoint that is nearer or less busy")
    return ok("rpc", f"{what}, newest block {seconds(max(0.0, age))} old")


# The pool's service and bucket


def service_checks(url: str | None) -> Iterator[Check]:
    """Ask the pool's service what it says of itself, and say what a watch would raise an alarm about."""
    if not url:
        yield note("service", "none named (--pool URL)")
        return
    try:
        config_hash = bytes.fromhex(ask_service(url, POOL).config_hash)
        facts = look_at_service(url, config_hash=config_hash, allow_private=True)
    except MusterError as error:
        yield failed("service", error.what, error.hint or "start it, or correct the URL")
        return
    alarms = surroundings(WatchLimits(), Facts(time.time(), service=facts))
    for alarm in alarms:
        mild = alarm.name == "version_behind"
        yield note("version", alarm.what) if mild else failed("service", alarm.what, alarm.hint)
    if not alarms:
        yield ok("service", f"{url} answers, and this clock is {facts.clock_offset:+.0f} s off its own")


def bucket(path: Path) -> str:
    settings = load_document(path, S3Settings)
    next(iter(Bucket(settings).list("manifests/")), None)
    return f"bucket {settings.bucket} at {settings.endpoint} can be read"


def first_manifest(service: str) -> Manifest | None:
    """Return the manifest of the first policy step as the service has it; None while there is none. Raises
    UnreachableError, IntegrityError, ConfigError."""
    published = [step for step in ask_service(service, DASHBOARD).published if step.manifest]
    if not published:
        return None
    try:
        digest = bytes.fromhex(min(published, key=lambda entry: entry.step).manifest)
        with service_objects(service, 20.0) as objects:
            stored = parse_json(objects(object_key("manifests", digest), MAX_STORED_BYTES))
        return SignedManifest.model_validate(stored).manifest
    except ValueError:
        raise IntegrityError("the weights' manifest is not one", "tell the pool's owner") from None


# The profile's keys, money and promises


def profile_keys(profile: Profile) -> Iterator[Check]:
    """Check every key file of the profile and its password file."""
    for _, key in profile.named_keys():
        yield keystore(key.keystore)
        if key.keystore.exists() and (path := key.password_file) is not None:
            yield judged("password", partial(check_private, path, "password file "), f"{path} is private")


def keystore(path: Path) -> Check:
    """Check a key file. One that is not there is no failure: the first `up` makes it."""
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
    if not folder.is_dir():
        return note("cache", f"{folder} is not there yet, it is made when needed")
    cache = WeightCache(folder)
    manifests = {digest.hex()[:12]: cache.manifest(digest) for digest in cache.versions()}
    damaged = [name for name, manifest in manifests.items() if manifest is None or not cache.is_intact(manifest)]
    what = f"damaged policy steps: {', '.join(damaged)}" if damaged else f"{len(manifests)} policy steps intact"
    return ok_if(not damaged, "cache", f"{what} in {folder}", "remove their folders there; they are fetched again")


def money(profile: Profile) -> Iterator[Check]:
    """Check the gas of every key, and an operator's stake, by the chain."""
    try:
        session = open_session(profile.deployment, profile.rpc)
        price, joined = session.client.gas_price(), False
        if profile.node and profile.node.keystore.exists() and profile.pool:
            node, least = address_of(profile.node.keystore), session.suite.court.terms_of(profile.pool).minStake
            known = session.suite.stakes.node_of(node)
            joined = known["pool"] != 0
            yield judge_stake(node, known["stake"], least)
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
