"""The compose bundles, by the rules of the compose specification that they rely on."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.ops.commands import problem

FOLDER = Path(__file__).parents[2] / "ops" / "compose"
BUNDLES = sorted(FOLDER.glob("*.yaml"))
KEYS = """image command restart read_only cap_drop cap_add security_opt pids_limit tmpfs volumes ports depends_on
ulimits healthcheck environment secrets stop_grace_period"""


def bundle(path: Path) -> dict[str, Any]:
    return dict(yaml.safe_load(path.read_text()))


def services() -> list[tuple[str, str, dict[str, Any]]]:
    return [(path.stem, name, one) for path in BUNDLES for name, one in bundle(path)["services"].items()]


def test_every_variable_is_in_the_env_file_and_every_one_there_is_used() -> None:
    lines = (FOLDER / ".env").read_text().splitlines()
    there = {line.partition("=")[0] for line in lines if "=" in line and not line.startswith("#")}
    assert set(re.findall(r"\$\{([A-Z_]+)\}", "\n".join(path.read_text() for path in BUNDLES))) == there


@pytest.mark.parametrize(("file", "name", "one"), services(), ids=lambda value: value if isinstance(value, str) else "")
def test_a_service_is_confined(file: str, name: str, one: dict[str, Any]) -> None:
    assert set(one) <= set(KEYS.split())
    assert re.fullmatch(r"\$\{[A-Z]+_IMAGE\}", one["image"])
    assert one["read_only"] is True
    assert one["cap_drop"] == ["ALL"]
    assert one["security_opt"] == ["no-new-privileges:true"]
    assert one["restart"] in ("on-failure", "unless-stopped")
    for port in one.get("ports", ()):
        is_proxy = name == "proxy" and port in ("80:80", "443:443")
        assert is_proxy or port.startswith(("127.0.0.1:", "${SERVICE_LISTEN}:")), "open to the world"
    for mount in one["volumes"]:
        source, target, *mode = mount.split(":")
        assert target.startswith("/")
        if source.startswith((".", "$")):
            assert mode == ["ro"], "what is on the host is not written"
        if source.startswith(".."):
            assert (FOLDER / source).exists(), source


@pytest.mark.parametrize("path", BUNDLES, ids=lambda path: path.stem)
def test_what_a_bundle_names_is_declared(path: Path) -> None:
    found = bundle(path)
    assert set(found) <= {"include", "services", "volumes", "secrets"}
    named = {mount.split(":")[0] for one in found["services"].values() for mount in one["volumes"]}
    assert {name for name in named if not name.startswith((".", "$"))} == set(found["volumes"])
    secrets = {name for one in found["services"].values() for name in one.get("secrets", ())}
    assert secrets == set(found.get("secrets", {}))
    for other in found.get("include", ()):
        included = bundle(FOLDER / other)
        for kind in ("services", "volumes", "secrets"):
            assert not set(included.get(kind, {})) & set(found.get(kind, {})), "an include must not clash"
    for one in found["services"].values():
        for wanted in one.get("depends_on", {}):
            assert "healthcheck" in found["services"][wanted]


def test_every_role_starts_with_a_command_that_there_is() -> None:
    commands = [" ".join(["muster", *one["command"]]) for _, _, one in services() if one["image"] == "${MUSTER_IMAGE}"]
    assert len(commands) == 7
    for command in commands:
        assert problem(command) == "", command
