"""`muster swarm status`: a member's progress, for people."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from protocol.encoding import parse_document
from protocol.errors import ConfigError
from swarm.config import SwarmMemberConfig
from swarm.member import load_swarm
from swarm.state import JOURNAL, STATUS
from tests.cli.muster import Muster

BUCKET = {"endpoint": "http://127.0.0.1:1", "bucket": "none", "credentials": "none"}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"gate": {"url": "https://gate.example"}}, "name either `s3`"),
        ({"s3": None}, "name either `s3`"),
        ({"members": ["0x12"]}, "members.0"),
        ({"mix": {"own": 8, "shared": 1}}, "this swarm's envelopes hold 8"),
    ],
)
def test_what_is_wrong_with_a_configuration_is_named(tmp_path: Path, changes: dict[str, Any], words: str) -> None:
    swarm = {"name": "sums", "environments": [{"name": "reasoning_gym/chain_sum"}], "groups": 8, "samples": 4}
    (tmp_path / "swarm.json").write_text(json.dumps(swarm))
    values = {
        **{"home": str(tmp_path / "me"), "document": str(tmp_path / "swarm.json"), "model": {"source": "model"}},
        **{"key": {"keystore": str(tmp_path / "key.json")}, "s3": BUCKET, **changes},
    }
    with pytest.raises(ConfigError, match=words):
        load_swarm(parse_document(json.dumps(values).encode(), SwarmMemberConfig, "it"))


def test_status(tmp_path: Path) -> None:
    muster, home = Muster(tmp_path), tmp_path / "me"
    assert "has made a round yet" in muster.refused("swarm", "status", "--home", home)
    home.mkdir()
    record = {"true": 5, "breaches": 1, "unfit": 2}
    status = {"member": "0xabc", "round": 1, "alone": True, "offers": 3, "unsent": 2, "peers": {"0xdef": record}}
    (home / STATUS).write_text(json.dumps({**status, "reward": 0.5, "seconds": 1.0}))
    lines: list[dict[str, object]] = [
        {"round": number, "reward": 0.25 + number / 4, "own": 4, "shared": ["a/0/1"] * number} for number in (0, 1)
    ]
    (home / JOURNAL).write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert re.search("held out +none", muster.ok("swarm", "status", "--home", home).out)
    lines[0]["held_out"], lines[1]["held_out"] = [[0, 0.125]], [[2, 0.5]]
    (home / JOURNAL).write_text("".join(json.dumps(line) + "\n" for line in lines))
    text = " ".join(muster.ok("swarm", "status", "--home", home).out.split())
    for words in ("alone True", "reward 0.5", "cumulative reward 0.75", "shared groups used 1", "unsent 2"):
        assert words in text
    assert "peers true breaches unfit ----- ---- -------- ----- 0xdef 5 1 2" in text
    assert "rounds reward ------ ------ 0 0.125 2 0.5" in text
    assert "is the home of no worker" in muster.refused("diloco", "status", "--home", home), "a status of the same name"
