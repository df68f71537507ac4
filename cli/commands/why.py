"""`muster why FILE`: any file explained, from chain and published verdicts."""

from typing import Annotated

import typer

from cli.options import PoolOption, Reading
from cli.output import emit
from protocol.errors import ConfigError


def why(
    file: Annotated[int, typer.Argument(min=0, help="Number of the file in its pool.")],
    look: Reading,
    pool: PoolOption = 1,
    orchestrator: Annotated[
        str | None, typer.Option(help="The pool's service, if not where its owner announced it.")
    ] = None,
) -> None:
    """Say in plain words what happened to a file, who decided it and by which findings, and what can be done."""
    from cli.evidence import explain
    from cli.views.why import why_text, why_view

    session = look.open()
    session.pool(pool)
    state = session.state()
    sub = state.submissions.get((pool, file))
    if sub is None:
        have = len(state.submissions_of(pool))
        raise ConfigError(f"there is no file {file} in pool {pool}", f"it has {have} files; see: muster pool status")
    view, service = why_view(state, sub, session.client.now()), orchestrator or state.pools[pool].service_url
    evidence = explain(state, sub, service) if service and view["votes"] else []
    emit(view | {"evidence": evidence}, look.json, lambda: why_text(view, evidence))
