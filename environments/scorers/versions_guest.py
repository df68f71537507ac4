"""Answers which version of a package is there, inside the sandbox, where none has metadata: before math-verify."""

import importlib.metadata

VERSIONS = {"antlr4-python3-runtime": "4.13.2"}
"""Its parser comes in one file for each of these."""


def version(distribution_name: str) -> str:
    return VERSIONS[distribution_name]


importlib.metadata.version = version
