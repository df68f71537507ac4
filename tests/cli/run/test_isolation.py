"""Isolation on the command line: what an option, a profile and the doctor say of it."""

import json
from pathlib import Path

import pytest

from cli.diagnose import checks as doctor
from cli.profile import Profile, load_profile, profile_text
from cli.run.process import isolation_words
from sandbox import launch as choosing
from sandbox.launch import Probed
from sandbox.policy import Mode
from worker.config import WorkerConfig

IMAGE = "sha256:" + "12" * 32


def profile(folder: Path, text: str = "") -> Profile:
    made = profile_text(
        "operator", pool=1, service="https://p.example", rpc=None, home=folder / "h", cache=folder / "c"
    )
    path = folder / "operator.toml"
    path.write_text(made.replace('isolation = "auto"', text) if text else made)
    return load_profile(path)


def test_a_profile_names_mode_and_image(tmp_path: Path) -> None:
    made = profile(tmp_path)
    assert (made.isolation, made.isolation_image) == ("auto", ""), "a new operator's asks for what works best"
    made = profile(tmp_path, f'isolation = "container"\nisolation_image = "{IMAGE}"')
    assert (made.isolation, made.isolation_image) == ("container", IMAGE)


def nothing_works(mode: Mode, image: str) -> Probed:
    return Probed(f"no {mode.value} here")


def test_the_plain_mode_is_announced_with_what_it_leaves_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choosing, "try_mode", nothing_works)
    values = {
        **{"home": "/srv/h", "cache": "/srv/c", "deployment": "/srv/d.json", "node": {"keystore": "/srv/k.json"}},
        **{"rpc": ["https://rpc.example"], "pool": 1, "orchestrator": "https://p.example"},
    }
    path = tmp_path / "worker.json"
    path.write_text(json.dumps(values))
    said = isolation_words(path, WorkerConfig).splitlines()
    assert said[:4] == [
        "isolation: not podman: no podman here",
        "isolation: not docker: no docker here",
        "isolation: not bubblewrap: no bubblewrap here",
        "isolation: plain",
    ]
    assert said[4].startswith("isolation: NOT protected: every file of this user, keys included; the network;")


def test_the_doctor_has_one_line_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choosing, "try_mode", nothing_works)
    found = doctor.isolation("")
    assert found.state == "note"
    assert "not be kept apart from this machine (podman: no podman here; docker: no docker here;" in found.line()
    assert "apt-get install bubblewrap" in found.line()

    def only_bubblewrap(mode: Mode, image: str) -> Probed:
        return Probed() if mode is Mode.BUBBLEWRAP else Probed("no image is named")

    monkeypatch.setattr(choosing, "try_mode", only_bubblewrap)
    found = doctor.isolation("")
    assert found.state == "ok"
    assert found.detail.startswith("bubblewrap works, limits per process only: no cgroup can be made (podman: no image")
