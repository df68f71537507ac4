"""`muster run report`: a run's record as one page that opens anywhere, without a service or a network."""

from pathlib import Path
from typing import Annotated

import typer

from cli.options import Commands, JsonOption
from cli.output import emit
from protocol.errors import ConfigError

app = Commands(help="A pool's run, as its service tells it.", no_args_is_help=True)
app.callback()(lambda: None)


@app.command()
def report(
    out: Annotated[Path, typer.Option(help="Page to write; the record is written beside it.")] = Path("report.html"),
    orchestrator: Annotated[str | None, typer.Option(help="URL of the pool's service.")] = None,
    run: Annotated[
        Path | None, typer.Option("--run", help="Or the folder of a run, such as `muster demo` leaves.")
    ] = None,
    json: JsonOption = False,
) -> None:
    """Keep a run as one page: rewards, training, nodes, files with verdicts and completions, money."""
    from orchestrator.dashboard.page import report_page
    from orchestrator.dashboard.results import documents, fetch_details, fetch_record, read_results
    from protocol.files import explained

    if (orchestrator is None) == (run is None):
        raise ConfigError("one source is needed", "pass --orchestrator URL or --run FOLDER")
    if run is not None:
        summary, record, details = read_results(run)
    else:
        summary, record = None, fetch_record(str(orchestrator))
        details = fetch_details(str(orchestrator), record)
    with explained(f"write {out}", "check the folder"):
        out.write_text(report_page(documents(summary, record, details)), encoding="utf-8")
        if run is None:
            out.with_suffix(".json").write_text(record.model_dump_json(indent=1), encoding="utf-8")
    shown = {"report": str(out), "pool": record.pool, "step": record.step, "steps": record.steps}
    emit(shown, json, lambda: f"{out}: {record.name}, policy step {record.step} of {record.steps}")
