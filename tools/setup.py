"""Brings a fresh machine to a working checkout: virtual environment, Foundry and solc from npm, built contracts.

Standard library only. Every step is skipped when its inputs have not changed, so a second run takes a second.
"""

import hashlib
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
DASHBOARD_LIBRARIES = ("uplot/dist/uPlot.iife.min.js", "uplot/dist/uPlot.min.css", "uplot/LICENSE")
PYTORCH_CPU_INDEX = "https://download.pytorch.org/whl/cpu"


def fail(what: str, hint: str) -> None:
    """End with status 2 and one line that says what is wrong and how to fix it."""
    print(f"setup: {what}; {hint}", file=sys.stderr)
    raise SystemExit(2)


def say(text: str) -> None:
    """Print that a step begins or ended."""
    print(f"setup: {text}", flush=True)


def check_prerequisites() -> None:
    """Python 3.11, Node 20 with npm, git and a C compiler; one line per missing one."""
    if sys.version_info[:2] != (3, 11):
        fail(f"Python {sys.version.split()[0]} runs this, but 3.11 is needed", "run `make PYTHON=python3.11 …`")
    if not sys.platform.startswith("linux"):
        fail(f"{sys.platform} is not supported", "use Linux (x86_64)")
    for tool, hint in {
        "node": "install Node.js 20 or newer",
        "npm": "install npm (it comes with Node.js)",
        "git": "install git",
    }.items():
        if shutil.which(tool) is None:
            fail(f"`{tool}` is not on the PATH", hint)
    if shutil.which("cc") is None and shutil.which("gcc") is None:
        fail("no C compiler (`cc`) is on the PATH", "install gcc or clang")
    if not (Path(sysconfig.get_paths()["include"]) / "Python.h").exists():
        fail("Python's C headers (Python.h) are missing", "install python3.11-dev")
    version = subprocess.run(["node", "--version"], capture_output=True, text=True, check=False).stdout.strip()
    match = re.match(r"v(\d+)", version)
    if not match or int(match.group(1)) < 20:
        fail(f"Node.js {version or 'unknown'} is too old", "install Node.js 20 or newer")


def run(argv: list[str], what: str) -> None:
    """Run a step with its output in build/setup.log; a line every ten seconds, so nobody waits in silence."""
    log_path = ROOT / "build" / "setup.log"
    log_path.parent.mkdir(exist_ok=True)
    start = last = time.monotonic()
    with log_path.open("a") as log:
        log.write(f"\n$ {' '.join(argv)}\n")
        log.flush()
        process = subprocess.Popen(argv, cwd=ROOT, stdout=log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)
        while process.poll() is None:
            time.sleep(0.1)
            if time.monotonic() - last >= 8:
                last = time.monotonic()
                say(f"  … {what}, {last - start:.0f} s")
    if process.returncode != 0:
        tail = log_path.read_text().strip().splitlines()[-12:]
        print("\n".join(tail), file=sys.stderr)
        fail(f"{what} failed (exit {process.returncode})", f"see {log_path.relative_to(ROOT)} and run again")
    say(f"{what}: {time.monotonic() - start:.0f} s")


def digest(*paths: Path) -> str:
    """Hex SHA-256 of the files' names and bytes, one after another."""
    sha = hashlib.sha256()
    for path in paths:
        sha.update(path.name.encode() + b"\0" + path.read_bytes())
    return sha.hexdigest()


def once(stamp: Path, wanted: str, step: Callable[[], None]) -> None:
    """Take a step unless it was done for what is there now."""
    if not stamp.exists() or stamp.read_text() != wanted:
        step()
        stamp.write_text(wanted)


def install_python() -> None:
    """The virtual environment with the locked packages, and muster itself."""
    if not PYTHON.exists():
        run([sys.executable, "-m", "venv", str(VENV)], "virtual environment")
    pip = [str(PYTHON), "-m", "pip", "install", "--disable-pip-version-check", "--no-deps"]
    install_torch(pip)
    run([*pip, "--require-hashes", "-r", "requirements.lock"], "Python packages")
    run([*pip, "--no-build-isolation", "-e", "."], "muster itself")


def install_torch(pip: list[str]) -> None:
    """Torch by its own lock file; from PyTorch's index too where pip's own lacks that build."""
    locked = [*pip, "--require-hashes", "-r", "requirements-torch.lock"]
    probe = subprocess.run([*locked, "--dry-run", "--quiet"], cwd=ROOT, capture_output=True, check=False)
    if probe.returncode != 0:
        locked += ["--extra-index-url", PYTORCH_CPU_INDEX]
    run(locked, "PyTorch")


def install_node() -> None:
    """npm's locked packages: Foundry, solc, OpenZeppelin, and what the dashboard uses."""
    # Not `npm ci`: it refuses a lock without the binaries of every other platform. Versions and hashes still bind.
    npm = ["npm", "install", "--no-save", "--no-audit", "--no-fund", "--loglevel=error"]
    run(npm, "Foundry, solc, OpenZeppelin and uPlot from npm")
    copy_libraries()


def copy_libraries() -> None:
    """What the dashboard serves of npm's packages, into the package, so that a wheel has it too."""
    for name in DASHBOARD_LIBRARIES:
        copy = ROOT / "orchestrator" / "static" / "vendor" / name
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / "node_modules" / name, copy)


def build_contracts() -> None:
    (forge,) = (ROOT / "node_modules" / "@foundry-rs").glob("forge-*/bin/forge")
    run([str(forge), "build", "contracts/src"], "contracts")


def compile_loops(module: str, what: str) -> None:
    """Into the user's cache, before a network of processes would do it at once."""
    run([str(PYTHON), "-m", module], f"{what}' loops")


def make_sandbox() -> None:
    """The interpreters that strangers' programs and answers are judged in, compiled for this machine."""
    run([str(PYTHON), "-m", "environments.sandbox.warm"], "sandbox")


def main() -> None:
    """All steps in order; those that are done are passed over."""
    os.chdir(ROOT)
    check_prerequisites()
    stamps = [folder / ".muster-stamp" for folder in (VENV, ROOT / "node_modules", ROOT / "contracts" / "out")]
    locks = [ROOT / name for name in ("requirements-torch.lock", "requirements.lock", "pyproject.toml")]
    packages = ROOT / "package-lock.json"
    contracts = [ROOT / "foundry.toml", packages, *sorted((ROOT / "contracts" / "src").rglob("*.sol"))]
    cache = os.environ.get("XDG_CACHE_HOME") or str(Path.home())
    once(stamps[0], digest(*locks) + f" {ROOT}", install_python)
    once(stamps[1], digest(packages), install_node)
    once(stamps[2], digest(*contracts), build_contracts)
    for folder, module, what in (
        ("proofs", "protocol.toploc.warm", "proofs"),
        ("delta", "storage.weights.warm", "weight deltas"),
    ):
        sources = digest(*sorted((ROOT / "protocol" / folder).glob("*.py")))
        once(VENV / f".muster-{folder}", sources + cache, partial(compile_loops, module, what))
    guests = [
        *(ROOT / "environments" / "sandbox").glob("*.py"),
        *(ROOT / "environments" / "scorers").glob("*_guest.py"),
    ]
    once(VENV / ".muster-sandbox", digest(*sorted(guests), *locks[1:]) + cache, make_sandbox)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        raise SystemExit(130) from None
