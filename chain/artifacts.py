"""What the Solidity compiler left: bytecode to deploy, and the input a block explorer needs to verify it."""

import json
from typing import Any

from chain import abi
from chain.resources import artifacts_folder
from protocol.errors import ConfigError


class Artifact:
    """One compiled contract."""

    def __init__(self, contract: str, document: dict[str, Any]) -> None:
        self.contract = contract
        self._document = document
        self.bytecode = bytes.fromhex(document["bytecode"]["object"].removeprefix("0x"))
        self.runtime_size = len(document["deployedBytecode"]["object"].removeprefix("0x")) // 2

    @classmethod
    def load(cls, contract: str) -> "Artifact":
        """Raises ConfigError when it is not built, or built from other sources than its committed ABI."""
        path = artifacts_folder() / f"{contract}.sol" / f"{contract}.json"
        try:
            document = json.loads(path.read_bytes())
            artifact = cls(contract, document)
        except OSError:
            raise ConfigError(f"{contract} is not compiled ({path} is missing)", "run make contracts") from None
        except (ValueError, KeyError, TypeError):
            raise ConfigError(f"{path} is damaged", "delete contracts/out and run make contracts") from None
        built = abi.parse(contract, document["abi"])
        known = abi.load(contract)
        if set(built.events) != set(known.events) or set(built.functions) != set(known.functions):
            raise ConfigError(f"the build of {contract} differs from its committed ABI", "run make contracts")
        return artifact

    def encode_arguments(self, *arguments: Any) -> bytes:
        constructors = [e for e in self._document["abi"] if e["type"] == "constructor"]
        inputs = constructors[0]["inputs"] if constructors else []
        return abi.Parameters(f"{self.contract}'s constructor", inputs).encode(arguments)

    def gas_limit(self, init_code: bytes) -> int:
        """Enough gas to create the contract: call data, init code, stored code, and the constructor's own writes."""
        return 100_000 + 50 * len(init_code) + 200 * self.runtime_size + 1_500_000

    def verification(self, arguments: bytes) -> dict[str, Any]:
        """For an explorer: the compiler's standard JSON input with literal sources, the compiler version, the name and
        the constructor arguments. Raises ConfigError when the build does not hold its sources."""
        metadata = self._document["metadata"]
        try:
            sources = {name: {"content": entry["content"]} for name, entry in metadata["sources"].items()}
        except KeyError:
            raise ConfigError(f"{self.contract} was compiled without its sources", "run make contracts") from None
        settings = {k: v for k, v in metadata["settings"].items() if k != "compilationTarget"}
        settings["outputSelection"] = {"*": {"*": ["abi", "evm.bytecode.object", "evm.deployedBytecode.object"]}}
        ((source, name),) = metadata["settings"]["compilationTarget"].items()
        return {
            "compiler": "v" + metadata["compiler"]["version"],
            "contract": f"{source}:{name}",
            "constructor_arguments": arguments.hex(),
            "standard_json_input": {"language": "Solidity", "sources": sources, "settings": settings},
        }
