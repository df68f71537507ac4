"""Imports what commands import while they run, and takes long; beside `cli` itself and the roles."""

import gc
import importlib
import os
import pkgutil

import cli

NEEDED = ("calibration.measuring", "chain.deploy", "engines.hf", "environments.gym", "reasoning_gym", "pytest")
ROLES = ("orchestrator", "trainer", "validator", "worker")

os.environ["OMP_NUM_THREADS"] = "1"
for name in (
    *(found.name for found in pkgutil.walk_packages(cli.__path__, "cli.")),
    *NEEDED,
    *(f"{role}.main" for role in ROLES),
):
    importlib.import_module(name)
gc.freeze()  # or every child's collector would copy all of it
