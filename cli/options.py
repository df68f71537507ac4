"""Options that many commands share, alone and in groups."""

import dataclasses
import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from cli.pool.ref import PoolRef
from protocol.encoding import parse_tokens
from protocol.errors import ConfigError, first_problem

if TYPE_CHECKING:
    from cli.session import Session
    from runtime.process import EngineConfig, ProcessConfig


def address_option(name: str, help: str) -> Any:
    """An option that takes an address with its checksum. Raises ConfigError, naming the option, for anything else."""

    return typer.Option(name, parser=lambda text: parse_address(text, name), metavar="ADDRESS", help=help)


def parse_address(text: str, name: str) -> str:
    """Return an address. Raises ConfigError, naming the option, unless it has its checksum."""
    from protocol.signing import checked_address

    try:
        return checked_address(text.strip())
    except ValueError as error:
        raise ConfigError(f"{name}: {error}", "copy it again, with its checksum") from None


def tokens_option(name: str, help: str = 'Tokens, such as "12.5".') -> Any:
    """An option that takes tokens and gives base units. Raises ConfigError, naming the option, for anything else."""
    return typer.Option(name, parser=lambda text: parse_tokens(text, name), metavar="TOKENS", help=help)


KeystoreOption = Annotated[
    Path | None,
    typer.Option("--keystore", envvar="MUSTER_KEYSTORE", help="Encrypted key file (muster keys create)."),
]
PasswordFileOption = Annotated[
    Path | None,
    typer.Option(
        "--password-file",
        envvar="MUSTER_PASSWORD_FILE",
        help="File (mode 0600) with the key's password; asked for if missing.",
    ),
]
DeploymentOption = Annotated[
    Path | None,
    typer.Option("--deployment", envvar="MUSTER_DEPLOYMENT", help="Deployment file: addresses, chain and RPC URL."),
]
RpcOption = Annotated[
    str | None, typer.Option("--rpc", envvar="MUSTER_RPC", help="RPC URL instead of the deployment file's.")
]
PoolOption = Annotated[
    PoolRef | None,
    typer.Option("--pool", parser=PoolRef.parse, metavar="NUMBER|URL", help="Pool: its number, or its service's URL."),
]
NodeOption = Annotated[str, address_option("--node", "Address of the node.")]
AmountOption = Annotated[int, tokens_option("--amount")]
OutFileOption = Annotated[Path, typer.Option("--out", help="File to write.")]
JsonOption = Annotated[
    bool, typer.Option("--json", help="Print one JSON document; amounts are integers in base units.")
]
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Show and simulate what would be sent; send nothing.")]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Ask nothing, not even before money moves.")]


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
class PoolReading(Reading):
    """Options of a command that only looks at a pool."""

    pool: PoolOption = None

    def number(self, session: "Session") -> int:
        """Return the pool's number. Raises ConfigError unless it is clear which one is meant."""
        return session.pool_number(self.pool)

    def service(self, session: "Session | None") -> str:
        """Return the URL of the pool's service: the one that was named, else the one that its owner announced on chain;
        empty if neither is known."""
        if self.pool is not None and self.pool.url:
            return self.pool.url
        pool = session.state().pools.get(self.number(session)) if session is not None else None
        return pool.service_url if pool else ""

    def observer(self, engine: "EngineConfig", home: Path, cache: Path, allow_private: bool) -> "ProcessConfig":
        """Return what a process without a key needs to know to read the pool. `home` keeps the chain's events,
        `cache` the weights. Raises ConfigError if deployment, pool or service are not known."""
        from cli.session import deployment_file, deployment_rpc, load_deployment
        from runtime.process import ProcessConfig

        suite = load_deployment(self.deployment)
        if self.pool is not None and self.pool.number and self.pool.url:
            number, service = self.pool.number, self.pool.url
        else:
            session = self.open()
            number, service = self.number(session), self.service(session)
            session.client.close()
        if not service:
            raise ConfigError(f"the owner of pool {number} announced no service", f"pass --pool {number}@URL")
        assert self.deployment is not None, "it was loaded"
        return ProcessConfig(
            home=home,
            cache=cache,
            deployment=deployment_file(self.deployment),
            rpc=tuple(deployment_rpc(suite, self.rpc)),
            pool=number,
            orchestrator=service,
            allow_private_sources=allow_private,
            engine=engine,
        )


@dataclass(frozen=True)
class PoolActing(Acting):
    """Options of a command that sends something about a pool."""

    pool: PoolOption = None

    def number(self, session: "Session") -> int:
        """Return the pool's number. Raises ConfigError unless it is clear which one is meant."""
        return session.pool_number(self.pool)


@dataclass(frozen=True)
class PoolPaying(PoolActing, Paying):
    """Options of a command about a pool that moves money or cannot be undone."""


@dataclass(frozen=True)
class EngineOptions:
    """Options of the engine that generates or judges."""

    name: Annotated[str, typer.Option("--engine", help="transformers, vllm, or auto: vLLM where it is installed.")] = (
        "transformers"
    )
    batch: Annotated[int, typer.Option(min=1, max=65536, help="Rollouts in one pass of the model.")] = 64
    dtype: Annotated[str, typer.Option(help="float32 or bfloat16, as the pool's thresholds want it.")] = "float32"
    device: Annotated[str, typer.Option(help="Where the model runs: cpu or cuda.")] = "cpu"
    threads: Annotated[int, typer.Option(min=1, max=1024, help="Threads that compute.")] = 1

    def config(self) -> "EngineConfig":
        """Raises ConfigError naming the option."""
        from pydantic import ValidationError

        from runtime.process import EngineConfig

        try:
            return EngineConfig.model_validate(vars(self))
        except ValidationError as error:
            field, problem = first_problem(error.errors())
            raise ConfigError(
                f"--{'engine' if field == 'name' else field}: {problem}", "choose another value"
            ) from None

    def set_threads(self) -> None:
        """How many threads the process computes with; before torch is imported."""
        import os

        from engines.runtime import torch_environment

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
    """The command with every parameter whose type is a group replaced by the group's options, for typer to see; its own
    options come first."""
    groups: dict[str, type[Any]] = {}
    own: list[inspect.Parameter] = []
    shared: list[inspect.Parameter] = []
    for name, parameter in inspect.signature(command).parameters.items():
        group = parameter.annotation
        if isinstance(group, type) and dataclasses.is_dataclass(group):
            groups[name] = group
            shared += inspect.signature(group).parameters.values()
        else:
            own.append(parameter)
    own_names = {parameter.name for parameter in own}
    shared = list({parameter.name: parameter for parameter in shared}.values())
    spread = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in own + shared]

    @functools.wraps(command)
    def run(**given: Any) -> None:
        for name, group in groups.items():
            given[name] = group(**{f.name: given[f.name] for f in dataclasses.fields(group)})
        given = {name: value for name, value in given.items() if name in own_names | groups.keys()}
        command(**given)

    run.__signature__ = inspect.Signature(spread)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in spread}
    return run


def key_path(keystore: Path | None) -> Path:
    """The key file that was named. Raises ConfigError if none was."""
    if keystore is None:
        raise ConfigError("no key file is named", "pass --keystore FILE (or set MUSTER_KEYSTORE)")
    return keystore
