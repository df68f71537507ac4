"""eth_account without the pairings of BLS12-381, which take 0.65 s of CPU in every process that imports it.

Its key files know a version for validators of Ethereum, whose keys are of that curve; py_ecc builds its towers of
fields as it is imported. Ours are version 3 (`runtime.keystore`). So eth_keyfile finds two stand-ins while it is
imported, and the real ones from the moment on at which somebody uses them; whoever else imports py_ecc gets py_ecc.
"""

import importlib
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from types import ModuleType
from typing import Any

CURVE_ORDER = 0x73EDA753299D7D483339D80809A1D80553BDA402FFFE5BFEFFFFFFFF00000001
"""Of BLS12-381: the only other thing that eth_keyfile takes of py_ecc's two modules."""
_KEYFILE = "eth_keyfile.keyfile"


class LatePairings:
    """py_ecc's `G2ProofOfPossession`, imported when the first of its methods is looked up."""

    def __getattr__(self, name: str) -> Any:
        return getattr(importlib.import_module("py_ecc.bls").G2ProofOfPossession, name)


class _KeyfileLoader(SourceFileLoader):
    def exec_module(self, module: ModuleType) -> None:
        put = {name: one for name, one in _stand_ins().items() if name not in sys.modules}
        sys.modules.update(put)
        try:
            super().exec_module(module)
            return
        except ImportError:  # another version of it takes more
            if not put:
                raise
        finally:
            for name in put:
                del sys.modules[name]
        super().exec_module(module)


def _stand_ins() -> dict[str, ModuleType]:
    pairings, curve = ModuleType("py_ecc.bls"), ModuleType("py_ecc.bls12_381")
    pairings.__dict__["G2ProofOfPossession"] = LatePairings()
    curve.__dict__["curve_order"] = CURVE_ORDER
    return {one.__name__: one for one in (pairings, curve)}


class LateFinder(MetaPathFinder):
    """Finds eth_keyfile's module where it is, and lets it be loaded with the stand-ins."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != _KEYFILE:
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and isinstance(spec.loader, SourceFileLoader):
            spec.loader = _KeyfileLoader(spec.loader.name, spec.loader.path)
        return spec


def put_off() -> None:
    """From now on; once for a process."""
    if not any(isinstance(one, LateFinder) for one in sys.meta_path):
        sys.meta_path.insert(0, LateFinder())
