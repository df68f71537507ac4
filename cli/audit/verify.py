"""`muster verify`: recompute files, nodes, challenges and curricula from chain and bucket, and compare."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from cli.options import Commands, EngineOptions, PoolReading, PrivateOption, parse_address
from cli.output import emit
from protocol.files import user_cache

if TYPE_CHECKING:
    from runtime.process import ProcessConfig


app = Commands(help="Recompute what was decided, from public data alone.", no_args_is_help=True)

PublishedOption = Annotated[
    bool, Option("--published", help="By the verdict documents of judges, not by measuring again.")
]


@dataclass(frozen=True)
class ReplayOptions:
    """Options of a command that measures files again."""

    cache: Annotated[Path | None, Option(help="Folder for weights and chain events.")] = None
    allow_private_sources: PrivateOption = False

    def config(self, look: PoolReading, engine: EngineOptions) -> "ProcessConfig":
        """Return what a process without a key needs, before torch is imported. Raises ConfigError, UnreachableError."""
        engine.set_threads()
        home = self.cache or user_cache("verify")
        return look.observer(engine.config(), home, home / "weights", self.allow_private_sources)


@app.command("files", "muster verify files 17 33 --pool https://pool.example")
def files(
    look: PoolReading,
    engine: EngineOptions,
    replay: ReplayOptions,
    numbers: Annotated[
        list[int] | None, Argument(metavar="[FILE]...", min=0, help="Files; else all decided ones.")
    ] = None,
) -> None:
    """Judge decided files again from chain and bucket, and compare with outcome and votes.

    Exit code 1 if any outcome differs from ours."""
    config = replay.config(look, engine)
    from cli.audit.recompute import files_text, replayed_files

    document = replayed_files(config, numbers or [])
    emit(document, look.json, lambda: files_text(document), not document["differing"])


@app.command("node", "muster verify node ADDRESS --pool https://pool.example --published")
def node(
    address: Annotated[str, Argument(metavar="ADDRESS", help="Address of the node.")],
    look: PoolReading,
    engine: EngineOptions,
    replay: ReplayOptions,
    published: PublishedOption = False,
) -> None:
    """Add up the evidence of all files of a node, by the null models of its policy steps.

    Exit code 1 if they are together not an honest node's."""
    node = parse_address(address, "ADDRESS")
    config = replay.config(look, engine)
    from cli.audit.recompute import history_text, node_history

    document = node_history(config, node, published)
    emit(document, look.json, lambda: history_text(document), not document["accused"])


@app.command("challenge", "muster verify challenge 3 --pool https://pool.example")
def challenge(
    number: Annotated[int, Argument(metavar="CHALLENGE", min=1, help="Number of the node challenge.")],
    look: PoolReading,
    engine: EngineOptions,
    replay: ReplayOptions,
    published: PublishedOption = False,
) -> None:
    """Recompute a node challenge: files, drawn rows, votes and outcome.

    Exit code 1 if anything is wrong with it."""
    config = replay.config(look, engine)
    from cli.audit.recompute import challenge_text, replayed_challenge

    document = replayed_challenge(config, number, published)
    emit(document, look.json, lambda: challenge_text(document), document["follows"])


@app.command("curriculum", "muster verify curriculum 20 --pool https://pool.example")
def curriculum(step: Annotated[int, Argument(min=0, help="Policy step.")], look: PoolReading) -> None:
    """Recompute which problems a policy step's curriculum masks, and compare with what the owner published.

    Exit code 1 if it differs."""
    from cli.pool.dataset import check_curriculum

    check_curriculum(step, look)
