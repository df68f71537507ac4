"""`muster diloco`: several workers train one policy and synchronise once per outer step."""

import json as json_module
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Option

from cli.options import Acting, Commands, ConfigFileOption, JsonOption
from cli.output import emit, fields
from cli.plan import PlannedTransaction, act
from protocol.encoding import load_document
from protocol.errors import ConfigError, printable

app = Commands(help="Train one policy with several workers that synchronise rarely (DiLoCo).", no_args_is_help=True)

DocumentOption = Annotated[Path, Option(exists=True, dir_okay=False, help="The run's document, JSON or TOML.")]


@app.command("init", "muster diloco init --document run.json")
def init(
    document: DocumentOption,
    config: Annotated[
        Path | None, Option(exists=True, dir_okay=False, help="A text worker's, to hash its data.")
    ] = None,
    json: JsonOption = False,
) -> None:
    """Check a run's document and print its hash and timeouts.

    With --config, read a text worker's documents and print the hash that the run's document must have as `data`."""
    from diloco.config import DilocoRun, Timeouts, WorkerConfig

    run = load_document(document, DilocoRun)
    shown: dict[str, Any] = {"run": run.digest, "workers": len(run.workers), "coordinator": run.coordinator}
    if config is not None:
        from diloco.inner import data_digest, text_corpus
        from trainer.model.policy import model_folder

        worker = load_document(config, WorkerConfig)
        if worker.text is None:
            raise ConfigError(f"{config} configures no text worker", "give it `text`")
        corpus = text_corpus(worker.text)
        for number in range(len(corpus)):
            corpus.text(number)  # names what is no document, before a run begins
        shown |= {
            "data": data_digest(corpus, worker.text, model_folder(worker.model)),
            "documents": len(corpus) - worker.text.heldout, "kept_apart": worker.text.heldout,
        }  # fmt: skip
    emit(shown, json, lambda: f"{fields(shown)}\n{Timeouts.of(run).table()}")


@app.command("run", "muster diloco run --config worker.json")
def run(
    config: ConfigFileOption,
    coordinator: Annotated[bool, Option("--coordinator", help="Run the coordinator, who writes the log.")] = False,
) -> None:
    """Run a worker: inner steps, a contribution, the outer step, until it is stopped.

    A kill costs the inner steps since the last outer step; SIGTERM tells the others that it leaves. The configuration
    of a pool's trainer with `run` makes the trainer coordinate the workers that train its policy."""
    from diloco.main import run_coordinator, run_worker

    (run_coordinator if coordinator else run_worker)(config)


@app.command("status", "muster diloco status --home worker")
def status(
    home: Annotated[Path, Option(file_okay=False, help="Home of a worker or of the coordinator.")],
    json: JsonOption = False,
) -> None:
    """Show how far a process is, who takes part, and what it waits for."""
    path = home / "status.json"
    if not path.is_file():
        raise ConfigError(f"nothing was started in {home}", "muster diloco run --config FILE")
    document = json_module.loads(path.read_bytes())
    if not {"run", "waits", "phase"} <= document.keys():
        raise ConfigError(f"{home} is the home of no worker and of no coordinator", "name that folder as `--home`")
    emit(document, json, lambda: _text(document))


@app.command("record", "muster diloco record --document run.json --model model --dry-run")
def record(
    document: DocumentOption,
    model: Annotated[str, Option(help="Folder or Hugging Face id of the weights that the run starts from.")],
    by: Acting,
) -> None:
    """Open the run on chain, with the coordinator's key.

    The coordinator then records every outer step there, once its configuration names the run's number."""
    from diloco.config import DilocoRun
    from diloco.main import load_first_state

    run, session = load_document(document, DilocoRun), by.open()
    if session.client.address != run.coordinator:
        what = f"the coordinator of {run.name} is {run.coordinator}, this key is {session.client.address}"
        raise ConfigError(what, "use the coordinator's key")
    start = load_first_state(model).digest
    call = session.suite.diloco_runs.open(bytes.fromhex(run.digest), start)

    def outcome(receipts: list[Any]) -> tuple[dict[str, Any], str]:
        number = call.result(receipts[0])
        return {"run": number}, f"run {number}: name it as `chain.run` (of a pool's trainer: `chain_run`)"

    planned = PlannedTransaction(f"open the DiLoCo run {run.name}, from state {start.hex()[:16]}…", call)
    act(session, [planned], by, outcome, document=run.digest, start=start.hex())


@app.command("verify", "muster diloco verify 12 --config worker.json")
def verify(
    step: Annotated[int, Argument(min=0, help="A recorded outer step.")],
    config: ConfigFileOption,
    json: JsonOption = False,
) -> None:
    """Make a recorded outer step again from the chain and the bucket, and compare. Exit code 1 if anything differs."""
    from diloco.chain import verify_step
    from diloco.config import load_member
    from diloco.main import load_first_state

    member = load_member(config)
    record, faults = verify_step(member, load_first_state(member.model), step)
    number = member.chain and member.chain.run
    document = {
        "run": number, "step": step, "state": record.state, "entry": record.number,
        "contributions": [vars(contribution) for contribution in record.contributions],
        "faults": faults, "follows": not faults,
    }  # fmt: skip

    def text() -> str:
        verdict = [f"wrong: {printable(fault, 300)}" for fault in faults] or ["it follows from what was published"]
        return "\n".join([f"outer step {step} of run {number} led to {record.state}", *verdict])

    emit(document, json, text, not faults)


def _text(document: dict[str, Any]) -> str:
    waits = [f"{wait['what']}, since {datetime.fromtimestamp(wait['since']):%H:%M:%S}" for wait in document["waits"]]
    rows = {
        "run": document["run"],
        "worker" if "worker" in document else "coordinator": document.get("worker") or document["coordinator"],
        "outer step": f"{document['step']}, attempt {document['attempt']}, {document['phase']}",
        "state": document["digest"],
        "members": ", ".join(document["members"]) or "none",
        "joining": ", ".join(document["waiting"]) or "none",
        "waits for": "; ".join(waits) or "nothing",
    }
    lines = [f"{worker} does not count: {why}" for worker, why in document.get("excluded", {}).items()]
    backing_off = document.get("backing_off", {}).items()
    lines += [f"{worker} is excluded until outer step {step}" for worker, step in backing_off]
    lines += [f"a worker cannot use file {item}" for item in document.get("unusable", [])]
    return "\n".join([fields(rows), *lines])
