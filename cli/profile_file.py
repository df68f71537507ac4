"""Writing a profile: TOML in which every line says what it is for."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from cli.profile import Role
from protocol.errors import ConfigError
from protocol.files import explained, write_atomic

_KEY = {
    "operator": "It holds the stake and receives the pay. Keep a copy of both files elsewhere.",
    "validator": "It pays the bonds, owns the seats and receives the fees. Keep a copy of both files elsewhere.",
    "owner": "It owns the pool and its budget. Keep a copy of both files elsewhere.",
}

_PROCESSES = {"operator": ["worker"], "validator": ["validator"], "owner": ["trainer", "orchestrator"]}


@dataclass(frozen=True)
class ProfileFiles:
    """Files that a profile names; those that are not absolute lie beside it."""

    deployment: Path = Path("deployment.json")
    pool_config: Path = Path("pool.toml")
    s3: Path = Path("s3.json")


def profile_text(
    role: Role,
    *,
    pool: int | None,
    service: str | None,
    rpc: str | None,
    home: Path,
    cache: Path,
    files: ProfileFiles = ProfileFiles(),
) -> str:
    """A new profile. Keys lie in `keys/` beside it; a password file that is not wanted is removed by hand."""
    return "\n".join(_lines(role, pool, service, rpc, home, cache, files)) + "\n"


def name_pool(path: Path, pool: int) -> bool:
    """Write the pool's number into a profile that names none; whether it did."""
    text = path.read_text()
    named = text.replace(f"\n{_maybe('pool', None)}\n", f"\n{_maybe('pool', pool)}\n", 1)
    if named != text:
        write_atomic(path, named.encode(), 0o600)
    return named != text


def write_profile(path: Path, text: str, force: bool = False) -> None:
    """Write it. Raises ConfigError rather than overwrite one, unless with `force`."""
    if path.exists() and not force:
        raise ConfigError(f"there is a profile in {path} already", "change it there, or pass --force to write it anew")
    with explained(f"write {path}", "check the folder, or set MUSTER_PROFILE"):
        write_atomic(path, text.encode(), 0o600)


def _lines(
    role: Role, pool: int | None, service: str | None, rpc: str | None, home: Path, cache: Path, files: ProfileFiles
) -> Iterator[str]:
    yield "# What `muster` need not be told on every command. Options override it, and so do environment variables."
    yield "# Relative paths start at this file's folder. Without a password file the terminal asks for the password."
    yield f"role = {_quoted(role)}"
    yield ""
    yield "# Addresses of the contracts, and their chain: the pool's service tells them, or `muster deploy` wrote them."
    yield f"deployment = {_quoted(str(files.deployment))}"
    yield "# The chain's RPC; several with commas between them are used one after the other."
    yield _maybe("rpc", rpc)
    yield "# The pool, and the URL of its service."
    yield _maybe("pool", pool)
    yield _maybe("service", service)
    yield ""
    yield "# The process's memory: never delete it while work is under way."
    yield f"home = {_quoted(str(home))}"
    yield "# Weights by their hash; can be deleted while nothing runs."
    yield f"cache = {_quoted(str(cache))}"
    yield "# Let URLs that others choose lead into private networks: for networks on one machine only."
    yield "allow_private_sources = false"
    if role == "operator":
        yield from _isolation_lines()
    if role == "owner":
        yield "# The pool's configuration, as muster pool init writes it."
        yield f"pool_config = {_quoted(str(files.pool_config))}"
        yield "# Where the pool's bucket is: a JSON file {endpoint, bucket, region, credentials}."
        yield f"s3 = {_quoted(str(files.s3))}"
    yield from _key_lines("key", role, _KEY[role])
    if role == "operator":
        yield from _key_lines("node", "node", "It signs the node's files and pays their gas.")
    if role == "validator":
        yield from _key_lines("voters", "voter-1", "It votes for a seat; repeat this table for more seats.", many=True)
    if role == "owner":
        yield from _key_lines("service_key", "service", "The orchestrator's: it attests uploads.")
    else:
        yield from _engine_lines()
    for process in _PROCESSES[role]:
        yield ""
        yield f"# Further fields of the configuration of `muster {process} run`."
        yield f"[{process}]"


def _key_lines(table: str, name: str, what: str, many: bool = False) -> Iterator[str]:
    yield ""
    yield f"# {what}"
    yield f"[[{table}]]" if many else f"[{table}]"
    yield f'keystore = "keys/{name}.json"'
    yield f'password_file = "keys/{name}.password"'


def _isolation_lines() -> Iterator[str]:
    yield "# How the worker is kept apart from this machine: container, bubblewrap, none, or auto (what works best)."
    yield 'isolation = "auto"'
    yield "# The image that containers run, as NAME@sha256:… or sha256:…; without one there is no container."
    yield _maybe("isolation_image", None)


def _engine_lines() -> Iterator[str]:
    yield ""
    yield "# What computes: vllm, transformers, or auto (vLLM where it is installed); device cpu or cuda."
    yield "[engine]"
    yield 'name = "auto"'
    yield f"device = {_quoted(_device())}"
    yield "threads = 1"
    yield "batch = 64"


def _device() -> str:
    from cli.hardware import gpus

    return "cuda" if gpus() else "cpu"


def _maybe(name: str, value: str | int | None) -> str:
    return f"# {name} = " if value is None else f"{name} = {_quoted(value)}"


def _quoted(value: str | int) -> str:
    return json.dumps(value, ensure_ascii=False)  # a TOML basic string has JSON's escapes
