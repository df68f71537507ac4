"""The systemd units: hardened, accepted by systemd, with the exit codes that the processes have."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from runtime.entry import Exit
from tests.ops.commands import problem
from trainer.exits import EXIT_DONE, EXIT_LOST, EXIT_STOPPED, EXIT_UNSTABLE, EXIT_WRONG

FOLDER = Path(__file__).parents[2] / "ops" / "systemd"
UNITS = sorted(FOLDER.glob("*.service"))
HARDENED = (
    "NoNewPrivileges=true",
    "CapabilityBoundingSet=",
    "ProtectSystem=strict",
    "ProtectHome=true",
    "PrivateTmp=true",
    "RestrictSUIDSGID=true",
    "SystemCallFilter=@system-service",
    "User=muster",
    "UMask=0077",
    "Restart=on-failure",
)


def codes(role: str, name: str) -> set[int]:
    lines = (FOLDER / f"muster-{role}@.service").read_text().splitlines()
    settings = dict(line.split("=", 1) for line in lines if "=" in line and not line.startswith("#"))
    return set(map(int, settings.get(name, "").split()))


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_a_unit_is_hardened_and_starts_a_command_that_there_is(unit: Path) -> None:
    text = unit.read_text()
    for line in HARDENED:
        assert f"\n{line}\n" in text, line
    (command,) = re.findall(r"^ExecStart=/opt/muster/bin/(.+)$", text, re.MULTILINE)
    assert problem(command.replace("%i", "one")) == ""


def test_each_role_has_a_unit_and_exit_codes_that_a_restart_does_not_mend_end_it() -> None:
    roles = {unit.stem.removeprefix("muster-").removesuffix("@") for unit in UNITS}
    assert roles == {"worker", "validator", "orchestrator", "trainer", "watch"}
    assert codes("worker", "RestartPreventExitStatus") == {Exit.EJECTED}
    assert codes("trainer", "RestartPreventExitStatus") == {EXIT_WRONG, EXIT_UNSTABLE}
    assert codes("trainer", "RestartForceExitStatus") == codes("trainer", "SuccessExitStatus") == {EXIT_STOPPED}
    assert {EXIT_DONE, EXIT_LOST}.isdisjoint(codes("trainer", "RestartPreventExitStatus"))
    for role in ("validator", "orchestrator", "watch"):
        assert codes(role, "RestartPreventExitStatus") == set()


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_systemd_takes_the_unit_and_finds_it_hardened(unit: Path, tmp_path: Path) -> None:
    copy = tmp_path / unit.name
    # The program and the user are not on this machine.
    text = re.sub(r"^ExecStart=\S+", "ExecStart=/bin/true", unit.read_text(), flags=re.MULTILINE)
    copy.write_text(re.sub(r"^(User|Group)=.*\n", "", text, flags=re.MULTILINE))
    argv = ["systemd-analyze", "verify", "--man=no", str(copy)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    argv = ["systemd-analyze", "security", "--offline=true", "--no-pager", str(copy)]
    rated = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False).stdout
    (exposure,) = re.findall(r"Overall exposure level for \S+: ([\d.]+)", rated)
    assert float(exposure) <= 3.0, rated
