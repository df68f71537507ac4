"""Where the contracts' compiled files are: they come with the package, installed or in a checkout.

`contracts` holds no Python, yet it is packaged like the other folders (pyproject.toml), so that `muster` needs no
checkout to deploy and to call the suite.
"""

from pathlib import Path

# Not importlib.resources: in a namespace package it also finds a `contracts` folder of wherever Python was started.
_CONTRACTS = Path(__file__).resolve().parents[1] / "contracts"


def abi_folder() -> Path:
    """The committed ABIs, `<contract>.json`."""
    return _CONTRACTS / "abi"


def artifacts_folder() -> Path:
    """What the Solidity compiler left, `<contract>.sol/<contract>.json`; absent until `make contracts`."""
    return _CONTRACTS / "out"
