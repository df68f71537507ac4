"""`python -m tools.worker_image --wheel build/wheel/muster-….whl`: a worker's container image without a registry.

Made of what is on this machine: its Python, the packages that muster needs, shared libraries, and the wheel. Prints the
image's id, which a worker's configuration names as `isolation_image`. Where a registry can be reached,
ops/Containerfile makes a cleaner one.
"""

import argparse
import io
import os
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

PREFIX = "usr/local"
PYTHON = f"python{sys.version_info.major}.{sys.version_info.minor}"
SITE = f"{PREFIX}/lib/{PYTHON}/site-packages"
OPENMP = f"{PREFIX}/lib/libiomp5.so"  # Intel's, which torch asks for
NOT_OF_PYTHON = {"site-packages", "test", "idlelib", "tkinter", "turtledemo", "ensurepip", "lib2to3", "__pycache__"}
NOT_OF_PACKAGES = {"include", "tests"}
CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")
ACCOUNTS = {
    "etc/passwd": "root:x:0:0::/tmp:/nonexistent\nnobody:x:65534:65534::/tmp:/nonexistent\n",
    "etc/group": "root:x:0:\nnogroup:x:65534:\n",
}
WORKER = ("worker.daemon", "engines.hf", "worker.main")
LOADING = """
import importlib, pathlib, re, sys
(folder,) = (pathlib.Path(one) for one in sys.path if one.endswith("lib-dynload"))
parts = [path.name.split(".")[0] for path in folder.glob("*.so") if "_tkinter" not in path.name]
for name in parts + sys.argv[1:]:
    try:
        importlib.import_module(name)
    except ImportError:
        pass
maps = pathlib.Path("/proc/self/maps").read_text()
print(*sorted(set(re.findall(r"(/\\S+\\.so(?:\\.[0-9.]+)?)$", maps, re.M))), sep="\\n")
"""
Contents = dict[str, Path]  # path inside the image, without a leading slash → the file outside


def main() -> None:
    """Build the tar, import it, print the image's id."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--wheel", type=Path, required=True)
    parser.add_argument("--tar", type=Path, default=Path("build/worker-image.tar"), help="kept, for other machines")
    parser.add_argument("--engine", choices=("podman", "docker"), default="podman")
    given = parser.parse_args()
    contents = python_files() | package_files(needed("muster")) | shared_libraries(WORKER)
    given.tar.parent.mkdir(parents=True, exist_ok=True)
    write_tar(given.tar, contents, given.wheel)
    print(load(given.engine, given.tar, f"/{OPENMP}" if OPENMP in contents else ""))


def python_files() -> Contents:
    """The interpreter and its standard library."""
    base = Path(sys.base_prefix)
    libraries = [path for path in (base / "lib").glob("libpython*.so*") if not path.is_symlink()]
    files = {f"{PREFIX}/lib/{library.name}": library for library in libraries}
    files[f"{PREFIX}/bin/{PYTHON}"] = (base / "bin" / PYTHON).resolve()
    standard = base / "lib" / PYTHON
    for folder, folders, names in os.walk(standard):
        if Path(folder) == standard:
            folders[:] = [
                folder for folder in folders if folder not in NOT_OF_PYTHON and not folder.startswith("config-")
            ]
        for name in names:
            path = Path(folder) / name
            files[f"{PREFIX}/lib/{PYTHON}/{path.relative_to(standard)}"] = path
    intel = Path(sys.prefix) / "lib" / "libiomp5.so"
    return files | ({OPENMP: intel} if intel.is_file() else {})


def needed(root: str) -> list[metadata.Distribution]:
    """What a distribution needs, and what that needs, without `root` itself and without extras that nobody asks for."""
    distributions: dict[str, metadata.Distribution] = {}
    waiting = [(root, frozenset[str]())]
    for name, extras in waiting:  # which grows meanwhile
        try:
            distribution = metadata.distribution(name)
        except metadata.PackageNotFoundError:
            continue  # needed in name only: the lock file is installed without it, and tested so
        distributions[canonicalize_name(name)] = distribution
        for line in distribution.requires or ():
            wanted = Requirement(line)
            if wanted.marker is None or any(wanted.marker.evaluate({"extra": extra}) for extra in ("", *extras)):
                requirement = (canonicalize_name(wanted.name), frozenset(wanted.extras))
                waiting += [requirement] if requirement not in waiting else []
    return [distribution for name, distribution in distributions.items() if name != canonicalize_name(root)]


def package_files(distributions: Iterable[metadata.Distribution]) -> Contents:
    """The files of installed packages that lie in the packages' folder."""
    files = {}
    for distribution in distributions:
        for name in distribution.files or ():
            path = Path(str(distribution.locate_file(name)))
            if ".." not in name.parts and not NOT_OF_PACKAGES & set(name.parts) and path.is_file():
                files[f"{SITE}/{name}"] = path
    return files


def shared_libraries(modules: Iterable[str]) -> Contents:
    """The system's libraries that a Python has loaded once it has some modules, and the loader itself."""
    argv = [sys.executable, "-c", LOADING, *modules]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=600, check=True)
    homes = tuple({str(Path(prefix).resolve()) for prefix in (sys.prefix, sys.base_prefix)} - {"/usr"})
    paths = [Path(path) for path in done.stdout.split() if not path.startswith(homes)]
    # programs ask for `libz.so.1`, a link to the file that is loaded
    names = {other: path for path in paths for other in path.parent.glob(f"{path.name.split('.so')[0]}.so*")}
    libraries = {str(other).lstrip("/"): path for other, path in names.items() if other.resolve() == path}
    loaders = ("lib64/ld-linux-x86-64.so.2", "lib/ld-linux-aarch64.so.1")
    return libraries | {name: Path("/", name).resolve() for name in loaders if Path("/", name).exists()}


def write_tar(target: Path, contents: Contents, wheel: Path | None = None) -> None:
    """The root file system: `contents`, the wheel's files, and what a system without programs needs."""
    texts = {name: text.encode() for name, text in ACCOUNTS.items()}
    if wheel:
        with zipfile.ZipFile(wheel) as archive:
            texts |= {f"{SITE}/{name}": archive.read(name) for name in archive.namelist() if not name.endswith("/")}
    files = contents | ({str(CERTIFICATES).lstrip("/"): CERTIFICATES} if CERTIFICATES.exists() else {})
    with tarfile.open(target, "w") as tar:
        for name in ("tmp", "proc", "sys", "dev", "run"):
            tar.addfile(_entry(name, tarfile.DIRTYPE, 0o1777 if name == "tmp" else 0o755))
        for name in ("python3", "python"):
            link = _entry(f"{PREFIX}/bin/{name}", tarfile.SYMTYPE, 0o777)
            link.linkname = PYTHON
            tar.addfile(link)
        for name, path in sorted(files.items()):
            entry = _entry(name, tarfile.REGTYPE, 0o755 if os.access(path, os.X_OK) else 0o644)
            # compiled Python files count only while their source has its time
            entry.size, entry.mtime = path.stat().st_size, int(path.stat().st_mtime)
            with path.open("rb") as file:
                tar.addfile(entry, file)
        for name, data in sorted(texts.items()):
            entry = _entry(name, tarfile.REGTYPE, 0o644)
            entry.size = len(data)
            tar.addfile(entry, io.BytesIO(data))


def _entry(name: str, kind: bytes, mode: int) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(name)
    entry.type, entry.mode = kind, mode
    return entry


def load(engine: str, tar: Path, preload: str) -> str:
    """Import the tar; the image's id, `sha256:…`. Ends with status 1 if the engine refuses."""
    settings = {"PATH": "/usr/local/bin:/usr/bin:/bin", "LD_LIBRARY_PATH": "/usr/local/lib", "PYTHONUNBUFFERED": "1"}
    if preload:
        settings["LD_PRELOAD"] = preload
    changes = [f"--change=ENV {name}={value}" for name, value in settings.items()]
    done = subprocess.run([engine, "import", *changes, str(tar)], capture_output=True, text=True, check=False)
    if done.returncode:
        print(f"worker_image: {engine} does not take {tar}: {done.stderr.strip()}", file=sys.stderr)
        raise SystemExit(1)
    return done.stdout.strip().splitlines()[-1]


if __name__ == "__main__":
    main()
