"""`muster site`: one of several sites that train one policy, or the keeper of their log."""

import json as json_module
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from cli.options import Commands, JsonOption
from cli.output import emit, fields
from protocol.errors import ConfigError

app = Commands(help="Train one policy on several sites that synchronise seldom.", no_args_is_help=True)
app.callback()(lambda: None)

ConfigOption = Annotated[Path, typer.Option(exists=True, dir_okay=False, help="Configuration file.")]


@app.command("run")
def run(config: ConfigOption) -> None:
    """Take inner steps, contribute, make the outer steps, until it is stopped; a kill costs the inner steps since the
    last outer one, and SIGTERM tells the others that it leaves."""
    from trainer.sites.main import run_site

    run_site(config)


@app.command("keep")
def keep(config: ConfigOption) -> None:
    """Write the run's log: who takes part, what was signed and published, and which outer steps follow."""
    from trainer.sites.main import run_keeper

    run_keeper(config)


@app.command("data")
def data(config: ConfigOption, json: JsonOption = False) -> None:
    """What a text run's document has to say as `data`: a hash of a site's documents and tokenizer, which all sites have
    alike. Reads every document once."""
    from protocol.encoding import load_document
    from runtime.process import make_home
    from trainer.model.policy import model_folder
    from trainer.sites.config import SiteConfig
    from trainer.text.run_data import data_digest, text_corpus

    found = load_document(config, SiteConfig)
    if found.text is None:
        raise ConfigError(f"{config} is of no text run", "give it `text`")
    make_home(found.home)
    corpus = text_corpus(found.text, found.home)
    shown = {
        "data": data_digest(corpus, found.text, model_folder(found.model)),
        "documents": len(corpus) - found.text.heldout, "kept_apart": found.text.heldout,
    }  # fmt: skip
    emit(shown, json, lambda: fields({name.replace("_", " "): str(value) for name, value in shown.items()}))


@app.command("status")
def status(
    home: Annotated[Path, typer.Option(file_okay=False, help="Home of a site, or of the keeper.")],
    json: JsonOption = False,
) -> None:
    """How far it is, who takes part, and what it waits for."""
    path = home / "status.json"
    if not path.is_file():
        raise ConfigError(f"nothing was started in {home}", "muster site run --config FILE")
    document = json_module.loads(path.read_bytes())
    if not {"run", "waits", "phase"} <= document.keys():
        raise ConfigError(f"{home} is the home of no site, and of no keeper", "name that folder as `--home`")
    emit(document, json, lambda: _text(document))


def _text(document: dict[str, Any]) -> str:
    waits = [f"{one['what']}, since {datetime.fromtimestamp(one['since']):%H:%M:%S}" for one in document["waits"]]
    rows = {
        "run": document["run"],
        "site" if "site" in document else "keeper": document.get("site") or document["keeper"],
        "outer step": f"{document['step']}, attempt {document['attempt']}, {document['phase']}",
        "state": document["digest"],
        "members": ", ".join(document["members"]) or "none",
        "joining": ", ".join(document["waiting"]) or "none",
        "waits for": "; ".join(waits) or "nothing",
    }
    excluded = [f"{site} does not count: {why}" for site, why in document.get("excluded", {}).items()]
    left_out = [f"{site} is left out until outer step {step}" for site, step in document.get("left_out", {}).items()]
    unusable = [f"cannot be used by a site: file {item}" for item in document.get("unusable", [])]
    lines = [*excluded, *left_out, *unusable]
    return "\n".join([fields(rows), *lines])
