"""Where the contracts' compiled files are: they come with the package, installed or in a checkout.

`contracts` holds no Python, yet it is packaged like the other folders (pyproject.toml), so that `muster` needs no
checkout to deploy and to call the suite.
"""

from importlib.resources import files
from pathlib import Path


def abi_folder() -> Path:
    """The committed ABIs, `<contract>.json`."""
    return _folder("abi")


def artifacts_folder() -> Path:
    """What the Solidity compiler left, `<contract>.sol/<contract>.json`; absent until `make contracts`."""
    return _folder("out")


def source_root() -> Path:
    """The folder to which the compiler's source names, `contracts/src/…`, are relative."""
    return _folder("src").parent.parent


def _folder(name: str) -> Path:
    return Path(str(files("contracts").joinpath(name)))
