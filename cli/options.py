"""Options that many commands share, alone and in groups."""

import dataclasses
import functools
import inspect
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer
from pydantic import ValidationError
from typer import Option

from engines.torch_process import torch_environment
from protocol.encoding import parse_tokens
from protocol.errors import ConfigError, first_problem

if TYPE_CHECKING:
    from cli.session import Session
    from runtime.process import EngineConfig, ProcessConfig


def address_option(name: str, help: str) -> Any:
    """An option that takes an address with its checksum. Raises ConfigError, naming the option, for anything else."""

    return Option(name, parser=lambda text: parse_address(text, name), metavar="ADDRESS", help=help)


def parse_address(text: str, name: str) -> str:
    """Return an address. Raises ConfigError, naming the option, unless it has its checksum."""
    from protocol.signing import checked_address

    try:
        return checked_address(text.strip())
    except ValueError as error:
        raise ConfigError(f"{name}: {error}", "copy it again, with its checksum") from None


def tokens_option(name: str, help: str = 'Tokens, such as "12.5".') -> Any:
    """An option that takes tokens and gives base units. Raises ConfigError, naming the option, for anything else."""
    return Option(name, parser=lambda text: parse_tokens(text, name), metavar="TOKENS", help=help)


@dataclass(frozen=True)
class PoolRef:
    """A pool that a person named: by its number on chain, by the URL of its service, or by both (`3@https://…`)."""

    number: int | None = None
    url: str | None = None

    @classmethod
    def parse(cls, text: "str | PoolRef") -> "PoolRef":
        """Parse a number, a URL or both. Raises ConfigError."""
        from protocol.http.signing import service_url

        if isinstance(text, cls):
            return text
        number, at, url = str(text).strip().partition("@")
        if not number.isdecimal():
            return cls(None, service_url(str(text).strip()))
        if not 0 < int(number) < 1 << 32 or bool(at) != bool(url):
            raise ConfigError(f"--pool {str(text)[:80]!r} is no pool", "write its number, or the URL of its service")
        return cls(int(number), service_url(url) if url else None)

    def __str__(self) -> str:
        return "@".join(part for part in (str(self.number or ""), self.url or "") if part)


KeystoreOption = Annotated[
    Path | None,
    Option("--keystore", envvar="MUSTER_KEYSTORE", help="Encrypted key file (muster keys create)."),
]
PasswordFileOption = Annotated[
    Path | None,
    Option(
        "--password-file",
        envvar="MUSTER_PASSWORD_FILE",
        help="File (mode 0600) with the key's password; asked for if missing.",
    ),
]
DeploymentOption = Annotated[
    Path | None,
    Option("--deployment", envvar="MUSTER_DEPLOYMENT", help="Deployment file: addresses, chain and RPC URL."),
]
RpcOption = Annotated[
    str | None, Option("--rpc", envvar="MUSTER_RPC", help="RPC URL instead of the deployment file's.")
]
PoolOption = Annotated[
    PoolRef | None,
    Option("--pool", parser=PoolRef.parse, metavar="NUMBER|URL", help="Pool: its number, or its service's URL."),
]
ServiceRpcOption = Annotated[str | None, Option("--rpc", help="RPC URL instead of the one that the service names.")]
NodeOption = Annotated[str, address_option("--node", "Address of the node.")]
InviteOption = Annotated[Path | None, Option(help="Invite of the pool's owner, where one is needed.")]
AmountOption = Annotated[int, tokens_option("--amount")]
ConfigFileOption = Annotated[
    Path, Option("--config", exists=True, dir_okay=False, help="Configuration file of the process, JSON or TOML.")
]
OwnConfigOption = Annotated[
    Path | None,
    Option("--config", exists=True, dir_okay=False, help="Just run the process by this file, not by the profile."),
]
CacheOption = Annotated[
    Path | None, Option("--cache", file_okay=False, help="Folder of weights; else the profile's, or the user's.")
]
PrivateOption = Annotated[
    bool, Option("--allow-private-sources", help="Follow URLs that others chose into private networks too.")
]
OutFileOption = Annotated[Path, Option("--out", help="File to write.")]
JsonOption = Annotated[bool, Option("--json", help="Print one JSON document; amounts are integers in base units.")]
DryRunOption = Annotated[bool, Option("--dry-run", help="Show and simulate what would be sent; send nothing.")]
YesOption = Annotated[bool, Option("--yes", "-y", help="Ask nothing, not even before money moves.")]


@dataclass(frozen=True)
class Reading:
    """Options of a command that only looks."""

    deployment: DeploymentOption = None
    rpc: RpcOption = None
    json: JsonOption = False

    def open(self) -> "Session":
        """Connect without a key. Raises ConfigError, UnreachableError."""
        from cli.session import open_session

        return open_session(self.deployment, self.rpc)


@dataclass(frozen=True)
class KeyOptions:
    """Options of a command about one key file."""

    keystore: KeystoreOption = None
    password_file: PasswordFileOption = None
    json: JsonOption = False


@dataclass(frozen=True)
class Acting(KeyOptions):
    """Options of a command that sends something as a key, and need not ask first; `--yes` forbids any question."""

    deployment: DeploymentOption = None
    rpc: RpcOption = None
    dry_run: DryRunOption = False
    yes: YesOption = False

    def open(self) -> "Session":
        """Connect as the key. Raises ConfigError, UnreachableError."""
        from cli.session import open_session

        if self.yes and self.password_file is None:
            hint = "pass --password-file FILE (or set MUSTER_PASSWORD_FILE)"
            raise ConfigError("with --yes nothing is asked, but the key needs its password", hint)

        return open_session(self.deployment, self.rpc, key_path(self.keystore), self.password_file)


@dataclass(frozen=True)
class Paying(Acting):
    """Options of a command that moves money or cannot be undone: a person has to agree."""


@dataclass(frozen=True)
class _OfPool:
    pool: PoolOption = None

    def number(self, session: "Session") -> int:
        """Return the pool's number. Raises ConfigError unless it is clear which one is meant."""
        named = self.pool or PoolRef()
        return session.pool_number(named.number, named.url)


@dataclass(frozen=True)
class PoolReading(_OfPool, Reading):
    """Options of a command that only looks at a pool."""

    def service(self, session: "Session | None") -> str:
        """Return the URL of the pool's service: the one named, else the one announced on chain, else empty."""
        if self.pool is not None and self.pool.url:
            return self.pool.url
        pool = session.state().pools.get(self.number(session)) if session is not None else None
        return pool.service_url if pool else ""

    def observer(self, engine: "EngineConfig", home: Path, cache: Path, allow_private: bool) -> "ProcessConfig":
        """Return what a process without a key needs to read the pool. Raises ConfigError for what is not known."""
        from cli.session import deployment_file
        from runtime.process import ProcessConfig

        session = self.open()
        number, service, urls = self.number(session), self.service(session), session.client.provider.urls
        session.client.close()
        if not service:
            raise ConfigError(f"the owner of pool {number} announced no service", f"pass --pool {number}@URL")
        assert self.deployment is not None, "a session was opened"
        return ProcessConfig(
            home=home,
            cache=cache,
            deployment=deployment_file(self.deployment),
            rpc=tuple(urls),
            pool=number,
            orchestrator=service,
            allow_private_sources=allow_private,
            engine=engine,
        )


@dataclass(frozen=True)
class PoolActing(_OfPool, Acting):
    """Options of a command that sends something about a pool."""


@dataclass(frozen=True)
class PoolPaying(PoolActing, Paying):
    """Options of a command about a pool that moves money or cannot be undone."""


@dataclass(frozen=True)
class UpOptions:
    """Options of a command that takes every step until a process works for a pool."""

    pool: PoolOption = None
    rpc: ServiceRpcOption = None
    dry_run: DryRunOption = False
    yes: YesOption = False
    json: JsonOption = False

    @property
    def url(self) -> str | None:
        return self.pool.url if self.pool else None


@dataclass(frozen=True)
class EngineOptions:
    """Options of the engine that generates or judges."""

    name: Annotated[str, Option("--engine", help="transformers, vllm, or auto: vLLM where it is installed.")] = (
        "transformers"
    )
    batch: Annotated[int, Option(min=1, max=65536, help="Rollouts in one pass of the model.")] = 64
    dtype: Annotated[str, Option(help="float32 or bfloat16, as the pool's thresholds want it.")] = "float32"
    device: Annotated[str, Option(help="Where the model runs: cpu or cuda.")] = "cpu"
    threads: Annotated[int, Option(min=1, max=1024, help="Threads that compute.")] = 1

    def config(self) -> "EngineConfig":
        """Raises ConfigError naming the option."""
        from runtime.process import EngineConfig

        try:
            return EngineConfig.model_validate(vars(self))
        except ValidationError as error:
            field, problem = first_problem(error.errors())
            option = "engine" if field == "name" else field
            raise ConfigError(f"--{option}: {problem}", "choose another value") from None

    def set_threads(self) -> None:
        """How many threads the process computes with; before torch is imported."""
        for name, value in torch_environment(self.threads).items():
            os.environ.setdefault(name, value)


Command = TypeVar("Command", bound=Callable[..., None])


class Commands(typer.Typer):
    """Commands whose parameters may be groups of options (dataclasses)."""

    def command(self, name: str | None = None, example: str = "", **settings: Any) -> Callable[[Command], Command]:
        """Register a command; `example` stands at the end of its help."""
        if example:
            settings["epilog"] = f"Example: {example}"
        register = super().command(name, **settings)

        def add(command: Command) -> Command:
            register(_grouped(command))
            return command

        return add


def _grouped(command: Callable[..., None]) -> Callable[..., None]:
    """Replace every parameter whose type is a group by the group's options, behind the command's own."""
    parameters = inspect.signature(command).parameters
    groups = {
        name: parameter.annotation
        for name, parameter in parameters.items()
        if isinstance(parameter.annotation, type) and dataclasses.is_dataclass(parameter.annotation)
    }
    spread = {name: parameter for name, parameter in parameters.items() if name not in groups}
    for group in groups.values():
        spread |= {
            name: parameter for name, parameter in inspect.signature(group).parameters.items() if name not in spread
        }
    spread = {name: parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for name, parameter in spread.items()}

    @functools.wraps(command)
    def run(**given: Any) -> None:
        arguments = {
            name: group(**{field.name: given[field.name] for field in dataclasses.fields(group)})
            for name, group in groups.items()
        }
        command(**{name: given[name] for name in parameters if name not in groups}, **arguments)

    run.__signature__ = inspect.Signature(list(spread.values()))  # type: ignore[attr-defined]
    run.__annotations__ = {name: parameter.annotation for name, parameter in spread.items()}
    return run


def key_path(keystore: Path | None) -> Path:
    """The key file that was named. Raises ConfigError if none was."""
    if keystore is None:
        raise ConfigError("no key file is named", "pass --keystore FILE (or set MUSTER_KEYSTORE)")
    return keystore
