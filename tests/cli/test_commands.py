"""Every command: examples, `--json` where it answers, `--dry-run` where it sends; exit codes, help, output."""

import json
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from cli.main import app
from cli.output import emit, fields, seconds, table
from protocol import VERSION
from runtime.entry import Exit
from tests.cli.muster import Muster

PROCESSES = {"node up", "validator up", "pool serve", "pool train", "weights serve", "watch", "demo"}
OTHERS = re.compile(r"(diloco|swarm) .*")
"""Of other packages, which have tests of their own."""
STREAMS = {"logs"}
SENDS = re.compile(
    r"(keys send|deploy|node (up|join|claim|dispute|leave)|validator (?!status)[a-z-]+|challenge open"
    r"|pool (create|set-service|fund|remove-node|pause|close)|governance (?!status)[a-z-]+)"
)


def commands(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    for name, one in getattr(command, "commands", {}).items():
        if hasattr(one, "commands"):
            yield from commands(one, (*path, name))
        else:
            yield " ".join((*path, name)), one


ALL = dict(commands(get_command(app)))
OURS = sorted(name for name in ALL if not OTHERS.fullmatch(name))


def options(command: Any) -> set[str]:
    return {flag for parameter in command.params for flag in parameter.opts if flag.startswith("-")}


@pytest.mark.parametrize("name", OURS)
def test_an_example_names_options_that_there_are(name: str) -> None:
    words = shlex.split((ALL[name].epilog or "").removeprefix("Example: "))
    assert words[: 1 + len(name.split())] == ["muster", *name.split()]
    assert {word for word in words if word.startswith("--")} <= options(ALL[name])


@pytest.mark.parametrize("name", sorted(ALL))
def test_help_is_one_sentence_first_and_shows_every_character(name: str) -> None:
    first = (ALL[name].help or "").split("\n\n")[0].strip()
    assert first.endswith(".")
    assert len(" ".join(first.split())) < 120
    texts = [ALL[name].help or "", *(getattr(one, "help", None) or "" for one in ALL[name].params)]
    assert not [text for text in texts if "[" in text], "rich would take it for markup"


@pytest.mark.parametrize("name", sorted(set(OURS) - PROCESSES - STREAMS))
def test_what_answers_can_answer_programs(name: str) -> None:
    assert "--json" in options(ALL[name])


@pytest.mark.parametrize("name", sorted(name for name in ALL if SENDS.fullmatch(name)))
def test_what_sends_has_a_dry_run_and_runs_without_questions(name: str) -> None:
    assert {"--dry-run", "--yes"} <= options(ALL[name])


@pytest.mark.parametrize("name", sorted(ALL))
def test_pool_means_the_same_everywhere(name: str) -> None:
    for parameter in ALL[name].params:
        if "--pool" in parameter.opts:
            assert parameter.metavar == "NUMBER|URL"


def test_there_are_few_commands() -> None:
    assert len(ALL) <= 70


def test_the_version_and_short_help_are_there(tmp_path: Path) -> None:
    muster = Muster(tmp_path, installed=True)
    assert muster.ok("--version").out.strip() == f"muster {VERSION}"
    words = muster.ok("node", "join", "-h").out
    assert "Example: muster node join --pool 1" in " ".join(words.split())


def test_every_exit_code_of_a_process_is_documented() -> None:
    from trainer import exits

    trainer = {code for name, code in vars(exits).items() if name.startswith("EXIT_")}
    assert {Exit.DONE, Exit.EJECTED, Exit.STALLED, 1, 2, 130} | trainer == set(Exit)
    assert all(code.meaning for code in Exit)


HEAVY = ("torch", "transformers", "eth_account", "eth_abi", "httpx", "numpy", "chain")
PROBE = f"""
import sys
sys.argv = ["muster", "node", "--help"]
from cli.main import main
try:
    main()
finally:
    print([name for name in {HEAVY} if name in sys.modules], file=sys.stderr)
"""


def test_help_imports_no_heavy_library() -> None:
    done = subprocess.run([sys.executable, "-c", PROBE], capture_output=True, text=True, timeout=60, check=True)
    assert "dry-run" in done.stdout
    assert done.stderr.splitlines()[-1] == "[]"


def test_a_noun_alone_shows_its_help(tmp_path: Path) -> None:
    done = Muster(tmp_path, installed=True).run("node")
    assert done.code == 2
    assert "dry-run" in done.out
    assert done.err == ""


def test_columns_align_text_left_and_numbers_right() -> None:
    lines = table(["node", "units"], [["a", 5], ["longer", 12345]]).split("\n")
    assert lines == ["node    units", "------  -----", "a           5", "longer  12345"]
    assert table(["a"], [], empty="no nodes") == "no nodes"
    assert fields({"a": 1, "long": "x"}) == "a     1\nlong  x"


def test_json_keeps_integers_exact_and_bytes_readable(capsys: pytest.CaptureFixture[str]) -> None:
    emit({"base_units": 2**200 + 1, "hash": b"\x01\xff"}, True, lambda: "not this")
    assert json.loads(capsys.readouterr().out) == {"base_units": 2**200 + 1, "hash": "01ff"}


@pytest.mark.parametrize(("value", "text"), [(45, "45 s"), (600, "10 min"), (9000, "2.5 h"), (14 * 86400, "14 d")])
def test_durations(value: int, text: str) -> None:
    assert seconds(value) == text
