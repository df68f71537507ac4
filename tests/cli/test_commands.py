"""Every command: an example that can be typed, `--json` where it answers, `--dry-run` where it sends; exit codes."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from cli.examples import EXAMPLES
from cli.main import app
from protocol.version import VERSION
from tests.cli.muster import ROOT, Muster

PROCESSES = {
    "worker run",
    "validator run",
    "trainer run",
    "trainer sft",
    "orchestrator run",
    "relay run",
    "site keep",
    "site run",
    "site watch",
    "swarm gate",
    "swarm run",
    "watch",
    "demo",
}
STREAMS = {"logs"}
SENDS = re.compile(
    r"(keys send|deploy|node (up|register|stake|join|claim|dispute|announce|leave|withdraw)"
    r"|validator (?!status|run)[a-z-]+|pool (?!check|status|invite|init)[a-z-]+|governance (?!status)[a-z-]+"
    r"|site (?!keep|run|status|show|verify|watch|data)[a-z-]+)"
)


def commands(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    for name, one in getattr(command, "commands", {}).items():
        if hasattr(one, "commands"):
            yield from commands(one, (*path, name))
        else:
            yield " ".join((*path, name)), one


ALL = dict(commands(get_command(app)))


def options(command: Any) -> set[str]:
    return {flag for parameter in command.params for flag in parameter.opts if flag.startswith("-")}


def test_every_command_has_an_example_and_every_example_a_command() -> None:
    assert set(EXAMPLES) == set(ALL)


@pytest.mark.parametrize("name", sorted(EXAMPLES))
def test_an_example_names_options_that_there_are(name: str) -> None:
    words = shlex.split(EXAMPLES[name])
    assert words[: 1 + len(name.split())] == ["muster", *name.split()]
    assert {word for word in words if word.startswith("--")} <= options(ALL[name])


@pytest.mark.parametrize("name", sorted(set(ALL) - PROCESSES - STREAMS))
def test_what_answers_can_answer_programs(name: str) -> None:
    assert "--json" in options(ALL[name])


@pytest.mark.parametrize("name", sorted(name for name in ALL if SENDS.fullmatch(name)))
def test_what_sends_can_be_rehearsed_and_run_without_questions(name: str) -> None:
    assert {"--dry-run", "--yes"} <= options(ALL[name])


def test_the_version_and_short_help_are_there(tmp_path: Path) -> None:
    muster = Muster(tmp_path, installed=True)
    assert muster.ok("--version").out.strip() == f"muster {VERSION}"
    said = muster.ok("node", "join", "-h").out
    assert "Example: muster node join --pool 1" in " ".join(said.split())


def test_exit_codes_are_those_of_the_documented_table() -> None:
    from trainer import exits
    from worker.daemon import EXIT_OK, EXIT_REFUSED

    table = (ROOT / "docs" / "cli.md").read_text().split("### Exit codes")[1].split("###")[0]
    documented = {int(code) for row in re.findall(r"^\| ([0-9, ]+) \|", table, re.MULTILINE) for code in row.split(",")}
    trainer = {code for name, code in vars(exits).items() if name.startswith("EXIT_")}
    assert documented == {EXIT_OK, 1, 2, EXIT_REFUSED, 130} | trainer
