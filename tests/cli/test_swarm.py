"""`muster swarm init` and `status`: what is written, and what is refused."""

import json
from pathlib import Path

import pytest

from runtime.keystore import store
from swarm.config import SwarmMemberConfig
from swarm.state import JOURNAL, STATUS
from tests.cli.muster import Muster

DOCUMENT = {
    "name": "sums",
    "environments": [{"name": "reasoning_gym/chain_sum"}],
    "groups": 8,
    "samples": 4,
}


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "swarm.json").write_text(json.dumps(DOCUMENT))
    store(tmp_path / "key.json", bytes([9]) * 32, "correct horse battery staple", work_factor=1 << 10)
    return tmp_path


def joining(place: Path, **changes: str) -> list[str]:
    options = {
        "--home": "me",
        "--document": "swarm.json",
        "--model": "model",
        "--keystore": "key.json",
        "--exchange": "all",
    } | {f"--{name}": value for name, value in changes.items()}
    paths = ("--home", "--document", "--keystore", "--exchange")
    parts = [(name, str(place / value) if name in paths else value) for name, value in options.items()]
    return ["swarm", "init", *(word for part in parts for word in part)]


def test_init_writes_a_configuration_that_run_reads(muster: Muster, place: Path) -> None:
    answer = muster.ok(*joining(place), "--json").json
    config = SwarmMemberConfig.model_validate_json((place / "me" / "member.json").read_bytes())
    assert answer["config"] == str(place / "me" / "member.json")
    assert config.exchange == place / "all"
    assert (config.mix.own, config.mix.shared) == (4, 4)
    assert (place / "me" / "member.json").stat().st_mode & 0o077 == 0
    assert "is there already" in muster.refused(*joining(place))


@pytest.mark.parametrize(
    ("changes", "words"),
    [({"own": "8"}, "an envelope of this swarm holds 8"), ({"member": "0x12"}, "members.0")],
)
def test_init_says_what_is_wrong(muster: Muster, place: Path, changes: dict[str, str], words: str) -> None:
    assert words in muster.refused(*joining(place, **changes))
    assert not (place / "me" / "member.json").exists()


def test_a_member_names_one_way_to_the_others(muster: Muster, place: Path) -> None:
    assert "name one of `exchange`" in muster.refused(*joining(place), "--gate", "https://gate.example")
    options = joining(place)
    at = options.index("--exchange")
    muster.ok(*options[:at], *options[at + 2 :], "--gate", "https://gate.example")
    config = SwarmMemberConfig.model_validate_json((place / "me" / "member.json").read_text())
    assert config.gate is not None
    assert (config.gate.url, config.exchange, config.s3) == ("https://gate.example", None, None)


def test_status(muster: Muster, place: Path) -> None:
    muster.ok(*joining(place))
    home = place / "me"
    assert "no round yet" in muster.refused("swarm", "status", "--home", home)
    record = {"true": 5, "breaches": 1, "unfit": 2}
    status = {"member": "0xabc", "round": 1, "alone": True, "offers": 3, "unsent": 2, "peers": {"0xdef": record}}
    (home / STATUS).write_text(json.dumps({**status, "reward": 0.5, "seconds": 1.0}))
    lines: list[dict[str, object]] = [
        {"round": number, "reward": 0.25 + number / 4, "own": 4, "shared": ["a/0/1"] * number} for number in (0, 1)
    ]
    (home / JOURNAL).write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert "not measured" in muster.ok("swarm", "status", "--home", home).out
    lines[0]["held_out"], lines[1]["held_out"] = [[0, 0.125]], [[2, 0.5]]
    (home / JOURNAL).write_text("".join(json.dumps(line) + "\n" for line in lines))
    text = muster.ok("swarm", "status", "--home", home).out
    assert "gone, going on alone" in text
    assert "0.500 in the last round, 0.750 in all" in text
    assert "0.125 after 0 rounds, 0.500 after 2" in text
    assert "0xdef: 5 true groups, 2 of no use here, 1 breaches" in text
    assert "no member lives in" in muster.refused("swarm", "status", "--home", place / "other")
