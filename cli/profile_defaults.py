"""What a profile says, as defaults of the commands' options: typer asks the command line first, then the environment,
then these."""

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import typer
from typer.main import get_command

if TYPE_CHECKING:
    from cli.profile import Profile, ProfileKey, Role

_ROLE_OF: "dict[str, Role]" = {
    "node": "operator",
    "worker": "operator",
    "validator": "validator",
    "pool": "owner",
    "trainer": "owner",
    "orchestrator": "owner",
}
_WITHOUT = frozenset({"init", "up", "down", "ps", "logs", "watch", "demo", "deploy", "governance", "support"})
"""Commands that take no defaults: they make profiles or networks, or act with keys of their own."""

Value = Any


def profile_defaults(app: typer.Typer) -> dict[str, Any]:
    """Defaults for the command that is about to run, by its names and its options'. Raises ConfigError for a profile
    that cannot be read."""
    words = [word for word in sys.argv[1:] if not word.startswith("-")]
    if not words or words[0] in _WITHOUT or {"-h", "--help", "--version"} & set(sys.argv):
        return {}
    from cli.profile import find_profile

    profile = find_profile(_ROLE_OF.get(words[0]))
    if profile is None:
        return {}
    command = get_command(app).commands.get(words[0])  # type: ignore[attr-defined]
    return {words[0]: _of(command, option_values(profile), words[0])} if command else {}


def _of(command: Any, values: dict[str, Value], name: str) -> dict[str, Any]:
    """The values that a command has options for; of a group, by its commands."""
    if hasattr(command, "commands"):
        return {sub: _of(one, values, sub) for sub, one in command.commands.items() if sub not in _WITHOUT}
    known = {option.name: option for option in command.params}
    found = {option: values[option] for option in known if option in values}
    if name == "status" and "orchestrator" in known and "node" not in known:
        found.pop("orchestrator", None)  # the chain is asked unless a service is named
    return {option: _many(value) if known[option].multiple else _one(value) for option, value in found.items()}


def option_values(profile: "Profile") -> dict[str, Value]:
    """Option → value; addresses are read from key files when they are asked for."""
    found: dict[str, Value] = {
        "deployment": profile.deployment,
        "rpc": profile.rpc,
        "pool": profile.pool,
        "orchestrator": profile.service,
        "keystore": profile.key.keystore,
        "password_file": profile.key.password_file,
        "isolation_image": profile.isolation_image or None,
    }
    if profile.role == "operator" and profile.node:
        found |= {"node_keystore": profile.node.keystore, "node_password_file": profile.node.password_file}
        found["node"] = _address(profile.node)
    if profile.role == "validator":
        found |= {"voter": [_address(one) for one in profile.voters], "address": _address(profile.key)}
    if profile.role == "owner" and profile.service_key:
        found |= {"service": _address(profile.service_key), "url": profile.service}
    return {name: value for name, value in found.items() if value is not None}


def _address(key: "ProfileKey") -> Callable[[], str]:
    def read() -> str:
        from runtime.keystore import address_of

        return address_of(key.keystore)

    return read


def _one(value: Value) -> Value:
    return value if callable(value) else str(value)


def _many(value: Value) -> Value:
    values = value if isinstance(value, list) else [value]
    return lambda: [str(one() if callable(one) else one) for one in values]
