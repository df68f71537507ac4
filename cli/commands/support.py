"""`muster support bundle`: one file for whoever helps, without secrets."""

import os
import time
from pathlib import Path
from typing import Annotated

import typer

from cli.options import Commands, JsonOption
from cli.output import emit
from protocol.errors import ConfigError

app = Commands(help="What to hand to whoever helps.", no_args_is_help=True)
app.callback()(lambda: None)


@app.command()
def bundle(
    out: Annotated[Path | None, typer.Option(help="File to write, ending in .tar.gz.")] = None,
    lines: Annotated[int, typer.Option(min=0, max=100_000, help="Newest lines of each log.")] = 2000,
    json: JsonOption = False,
) -> None:
    """Put versions, profile, doctor's findings, status and the newest log lines into one file. Private keys, passwords,
    signatures of URLs and keystores are taken out; if one is found all the same, nothing is written."""
    from cli.profile import find_profile
    from cli.support.bundle import cleaned, gather, secret_files, write_bundle

    path = out or Path(f"muster-support-{time.strftime('%Y%m%d-%H%M%S')}.tar.gz")
    if not path.name.endswith(".tar.gz"):
        raise ConfigError(f"{path} does not end in .tar.gz", "choose another --out")
    if path.exists():
        raise ConfigError(f"{path} exists", "choose another --out")
    profile = find_profile(None)
    typer.echo("asking doctor and status", err=True)
    texts = cleaned(gather(profile, lines), os.environ, secret_files(profile))
    write_bundle(path, texts)
    shown = {"file": str(path), "contents": sorted(texts)}
    emit(shown, json, lambda: f"{path}: {', '.join(sorted(texts))}\nlook through it before you send it")
