"""`muster verify`: judge decided submissions again from chain and bucket, and say where the verdicts differ."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cli.options import DeploymentOption, JsonOption, PoolOption, RpcOption
from cli.output import emit, table
from protocol.errors import ConfigError

if TYPE_CHECKING:
    from validator.replay import Replayed

OrchestratorOption = Annotated[
    str, typer.Option("--orchestrator", help="The pool's service, or another source of files.")
]
SequencesArgument = Annotated[list[int] | None, typer.Argument(help="Submissions; all decided ones if none is named.")]
CacheOption = Annotated[Path | None, typer.Option("--cache", help="Folder for weights and chain events.")]


def verify(
    orchestrator: OrchestratorOption,
    sequences: SequencesArgument = None,
    deployment: DeploymentOption = None,
    pool: PoolOption = 1,
    rpc: RpcOption = None,
    cache: CacheOption = None,
    json: JsonOption = False,
) -> None:
    """Replay verdicts from public data alone; no key is needed. Exit code 1 if any outcome differs from ours."""
    import platformdirs

    from cli.session import load_deployment, rpc_urls
    from protocol.process import ProcessConfig
    from validator.replay import replay

    if deployment is None:
        raise ConfigError("no deployment is named", "pass --deployment FILE")
    folder = cache or platformdirs.user_cache_path("muster") / "verify"
    config = ProcessConfig(
        home=folder,
        cache=folder / "weights",
        deployment=deployment,
        rpc=tuple(rpc_urls(load_deployment(deployment), rpc)),
        pool=pool,
        orchestrator=orchestrator,
    )
    rows = [_row(one) for one in replay(config, sequences or ())]
    differing = [row for row in rows if not row["agrees"]]
    columns = ["submission", "node", "step", "decided", "ours", "agrees", "why"]
    summary = f"{len(rows)} verdicts replayed, {len(differing)} differ"
    emit({"replayed": rows, "differing": len(differing)}, json, lambda: table(columns, _cells(rows)) + f"\n{summary}")
    if differing:
        raise typer.Exit(1)


def _row(one: "Replayed") -> dict[str, Any]:
    return {
        "submission": one.submission.sequence,
        "node": one.submission.node,
        "step": one.submission.step,
        "decided": one.voted.label,
        "votes": [code.label for code in one.revealed],
        "ours": one.verdict.code.label,
        "agrees": one.agrees,
        "why": "; ".join(f"{finding.check}: {finding.note}" for finding in one.verdict.findings if finding.note),
        "now": one.submission.status.value,
    }


def _cells(rows: list[dict[str, Any]]) -> list[list[str]]:
    return [
        [
            str(row["submission"]),
            row["node"][:10],
            str(row["step"]),
            row["decided"],
            row["ours"],
            "yes" if row["agrees"] else f"NO (now {row['now']})",
            row["why"][:80],
        ]
        for row in rows
    ]
