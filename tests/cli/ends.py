"""Ends of processes of their own, in a module that takes nothing to import."""

import os

from protocol.errors import ConfigError


def fail_clearly() -> None:
    raise ConfigError("cannot", "do otherwise")


def die() -> None:
    os._exit(9)
