"""eth_account comes without pairings, and with them where somebody uses them."""

import subprocess
import sys

from protocol.late_pairings import CURVE_ORDER

_KEY = "0x" + "07" * 32


def _said(program: str) -> str:
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_keys_open_without_pairings() -> None:
    program = (
        "import protocol, sys; from eth_account import Account; "
        f"kept = Account.encrypt({_KEY!r}, 'word', kdf='pbkdf2', iterations=2); assert Account.decrypt(kept, 'word'); "
        "print(sorted(name for name in sys.modules if name.startswith(('py_ecc.bls', 'py_ecc.optimized'))))"
    )
    assert _said(program) == "[]"


def test_a_worker_starts_without_pairings() -> None:
    program = (
        "import worker.main, worker.daemon, sys; print(any(name.startswith('py_ecc.bls') for name in sys.modules))"
    )
    assert _said(program) == "False"


def test_who_uses_them_has_them() -> None:
    """The key of a validator of Ethereum, with its public key, and py_ecc itself, whole."""
    program = (
        "import protocol; from eth_keyfile import keyfile; "
        f"kept = keyfile.create_keyfile_json(bytes.fromhex({_KEY[2:]!r}), b'word', 4, 'pbkdf2', 2); "
        "from py_ecc.bls import G2ProofOfPossession; from py_ecc.bls12_381 import curve_order, pairing; "
        f"assert curve_order == {CURVE_ORDER} == keyfile.MAX_V4_PRIVATE_KEY + 1; "
        f"assert kept['pubkey'] == G2ProofOfPossession.SkToPk(int({_KEY!r}, 16)).hex(); print(kept['pubkey'][:8])"
    )
    assert len(_said(program)) == 8
