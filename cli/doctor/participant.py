"""Is a role ready, by its profile: keys and their modes, gas, stake, versions."""

import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cli.doctor.base import Prerequisite, failed, note, ok
from protocol.amounts import show_tokens
from protocol.errors import MusterError

if TYPE_CHECKING:
    from cli.profile import Profile, ProfileKey

_ETHER = 10**18
_GAS = {
    "operator": 700_000,
    "node": 1_250_000,
    "validator": 500_000,
    "voter": 1_250_000,
    "owner": 2_000_000,
    "service": 1_250_000,
}
"""Some twenty files of a node, ten lanes of a voter, registering or bonding once for the keys that hold money."""


@dataclass(frozen=True)
class Purse:
    """A key's ether against what it needs; wei."""

    name: str
    address: str
    wei: int
    needs: int


def look_at_keys(profile: "Profile") -> Iterator[Prerequisite]:
    """Every key file of the profile and its password file."""
    from cli.doctor.files import look

    for _, key in named_keys(profile):
        if not key.keystore.exists():
            yield note("keystore", f"{key.keystore} is not there yet (muster {_MAKES[profile.role]})")
            continue
        yield from look([key.keystore], [], [])
        if key.password_file is not None:
            yield password(key.password_file)


_MAKES = {"operator": "node up", "validator": "validator up", "owner": "keys create"}


def password(path: Path) -> Prerequisite:
    """Whether a password file is there, and nobody else's to read."""
    try:
        mode = path.stat().st_mode
    except OSError:
        return failed(
            "password", f"there is no {path}", "write the key's password there, or take it out of the profile"
        )
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        return failed("password", f"{path} is open to other users", f"chmod 600 {path}")
    return ok("password", f"{path} is private")


def named_keys(profile: "Profile") -> list[tuple[str, "ProfileKey"]]:
    """What each key of the profile is for."""
    keys = [(str(profile.role), profile.key), *(("voter", one) for one in profile.voters)]
    keys += [("node", profile.node)] if profile.node else []
    return [*keys, *([("service", profile.service_key)] if profile.service_key else [])]


def look_at_money(profile: "Profile") -> Iterator[Prerequisite]:
    """Gas of every key, and an operator's stake, by the chain."""
    from cli.session import open_session
    from runtime.keystore import address_of

    try:
        session = open_session(profile.deployment, profile.rpc)
        client, price = session.client, session.client.gas_price()
        for name, key in named_keys(profile):
            if key.keystore.exists():
                address = address_of(key.keystore)
                yield judge_gas(Purse(name, address, client.balance(address), _GAS[name] * price))
        if profile.node and profile.node.keystore.exists() and profile.pool:
            node, least = address_of(profile.node.keystore), session.suite.court.terms_of(profile.pool).minStake
            yield judge_stake(node, session.suite.stakes.node_of(node).stake, least)
    except MusterError as error:
        yield failed("gas", f"cannot be asked: {error.what}", error.hint)


def judge_gas(purse: Purse) -> Prerequisite:
    """Enough for a while, or what to send where."""
    what = f"the {purse.name}'s key {purse.address} has {purse.wei / _ETHER:.6f} ETH"
    if purse.wei < purse.needs:
        return failed("gas", what, f"send it {(purse.needs - purse.wei) / _ETHER:.6f} ETH")
    return ok("gas", what)


def judge_stake(node: str, stake: int, least: int) -> Prerequisite:
    """Base units at stake against the pool's least."""
    what = f"node {node} has {show_tokens(stake)} tokens at stake, the pool wants {show_tokens(least)}"
    return ok("stake", what) if stake >= least else failed("stake", what, "muster node up, or muster node stake")


def look_at_custody(profile: "Profile") -> Iterator[Prerequisite]:
    """Whether a validator can show the files that it accepts."""
    if profile.role != "validator":
        return
    named = [field for field in ("serve", "republish") if field in profile.validator]
    if named:
        yield ok("kept files", f"shown by `{named[0]}`")
    else:
        yield note(
            "kept files", "nobody is shown them: name `serve` or `republish` in [validator] (docs/validators.md)"
        )


def look_at_engines(profile: "Profile") -> Iterator[Prerequisite]:
    """With which engines a validator can measure files of node cases."""
    from runtime.process import EngineConfig
    from validator.judging.pipeline import others

    if profile.role != "validator":
        return
    named = profile.validator.get("case_engines")
    try:
        besides = [one.name for one in others(EngineConfig(name=profile.engine.name), named)]
    except MusterError as error:
        yield failed("engines", error.what, error.hint)
        return
    if besides:
        yield ok("engines", f"{profile.engine.name} for every file, {', '.join(besides)} for its files in node cases")
    else:
        yield note("engines", f"{profile.engine.name} alone: small cheats with another engine are not seen")


def version(service: str) -> Prerequisite:
    """Ours against what the pool's service says."""
    from cli.doctor.services import ask_orchestrator
    from protocol.api.endpoints import HEALTH
    from protocol.version import VERSION

    try:
        return judge_version(VERSION, ask_orchestrator(service, HEALTH).version)
    except MusterError as error:
        return note("version", f"muster {VERSION}; the service's is unknown ({error.what})")


def judge_version(ours: str, theirs: str) -> Prerequisite:
    """Versions that differ in more than their last number may not understand one another."""
    if ours.split(".")[:2] == theirs.split(".")[:2]:
        return ok("version", f"muster {ours}, the pool's service {theirs}")
    return failed("version", f"muster {ours}, the pool's service {theirs}", f"install muster {theirs}")
