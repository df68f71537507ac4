"""The demo's keys: one encrypted keystore and one password file per role, readable by their owner only."""

from dataclasses import dataclass
from pathlib import Path

from localnet.plan import DemoPlan
from protocol.accounts import LocalAccount
from runtime import keystore


@dataclass(frozen=True)
class RoleKey:
    """A role's key: where it lies, and, in this process only, the open account."""

    name: str
    keystore: Path
    password_file: Path
    account: LocalAccount

    @property
    def address(self) -> str:
        return str(self.account.address)

    def reference(self) -> dict[str, str]:
        """How a process configuration names this key."""
        return {"keystore": str(self.keystore), "password_file": str(self.password_file)}


class KeyRing:
    """Makes and remembers the keys of a run. Passwords are 32 random bytes, so light scrypt suffices."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.keys: dict[str, RoleKey] = {}

    def __getitem__(self, name: str) -> RoleKey:
        if name not in self.keys:
            self.keys[name] = self._open(name)
        return self.keys[name]

    def _open(self, name: str) -> RoleKey:
        path, password_file = self.folder / name / "key.json", self.folder / name / "password"
        password = keystore.create_password_file(password_file)
        if path.exists():
            account = keystore.load(path, password)
        else:
            account = keystore.create(path, password, work_factor=keystore.LIGHT_SCRYPT_N)
        return RoleKey(name, path, password_file, account)


def names(plan: DemoPlan) -> list[str]:
    """Every key of a run: governance, the pool's owner and service, an operator and a node key per node,
    an owner and voters per validator process, a key per site."""
    out = ["deployer", "owner", "service"]
    for name in plan.members:
        out += [f"operator-{name}", f"node-{name}"]
    for validator in plan.validators:
        out += [f"validator-{validator.name}", *voter_names(validator.name, validator.seats)]
    return [*out, *plan.site_names]


def voter_names(validator: str, seats: int) -> list[str]:
    return [f"voter-{validator}-{i + 1}" for i in range(seats)]
