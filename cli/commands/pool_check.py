"""`muster pool check`: can a pool with this configuration and these terms work, and what does it cost?"""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cli.options import JsonOption, tokens_option
from cli.output import emit
from protocol.errors import ConfigError

if TYPE_CHECKING:
    from chain.indexer.records import Terms
    from protocol.config import PoolConfig

ConfigFile = Annotated[Path, typer.Option(help="Pool configuration (TOML or JSON). [see: muster pool init]")]
TermsFileOption = Annotated[Path, typer.Option(help="Terms (TOML), or a network that muster has terms for.")]


def check(
    config: ConfigFile,
    terms: TermsFileOption,
    budget: Annotated[int, tokens_option("--budget", 'Tokens to escrow, such as "1000".')],
    json: JsonOption = False,
) -> None:
    """Look for what would keep a pool from working, and say what its files cost; needs no chain and no key. Exit code 1
    if it could not work; warnings do not count."""
    from cli.pool_plan import contradictions, costs, curriculum_lines, warnings, world_problems
    from cli.terms import load_terms
    from protocol.config import PoolConfig

    document = PoolConfig.load(config)
    values = load_terms(terms, document.digest)
    found = [*contradictions(document, values, budget), *world_problems(document)]
    cost = costs(document, values, budget)
    shown = {**vars(cost), "file": cost.file, "files": cost.files, "problems": [one.line for one in found]}
    shown["warnings"] = [one.line for one in warnings(document, values)]
    lines = [cost.text(), *curriculum_lines(document), *(f"WARNING  {line}" for line in shown["warnings"])]
    lines += [f"PROBLEM  {one.line}" for one in found]
    emit(shown, json, lambda: "\n".join(lines if found else [*lines, "this pool can work"]))
    if found:
        raise typer.Exit(1)


def refuse_what_cannot_work(document: "PoolConfig", values: "Terms", budget: int) -> None:
    """Raise ConfigError for the first problem: money that is in a pool that cannot work comes back only at its end."""
    from cli.pool_plan import contradictions, world_problems

    for problem in [*contradictions(document, values, budget), *world_problems(document)]:
        raise ConfigError(problem.what, f"{problem.hint} (see: muster pool check)")
