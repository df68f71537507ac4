"""The chain in this process: transactions, forks, and block hashes that contracts see."""

import sys
from random import Random
from typing import Any

import pytest

pytest.importorskip("pyrevm", reason="pyrevm has no wheel for this Python")

from chain.abi import checksum
from protocol.accounts import Account
from simulation.chain import Chain, with_balance_for_hash

# Runtime code: storage[0] += 1, then the hash of the block that calldata names; it is deployed by what comes before.
COUNTER = bytes.fromhex("60005460010160005560003540" + "60005260206000f3")
DEPLOY = bytes.fromhex(f"60{len(COUNTER):02x}600c60003960{len(COUNTER):02x}6000f3") + COUNTER
OWNER = Account.from_key(b"\1" * 32)


class Driver:
    """A chain, its clock, and one account."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.chain = Chain(31337, lambda: self.now, Random(1))

    def ask(self, method: str, *params: Any) -> Any:
        return self.chain.answer({"id": 1, "method": method, "params": list(params)})

    def mine(self, blocks: int = 1) -> None:
        for _ in range(blocks):
            self.now += 4
            self.chain.mine()

    def send(self, data: bytes, to: str = "") -> str:
        nonce = int(self.ask("eth_getTransactionCount", OWNER.address, "pending")["result"], 16)
        fields = {"type": 2, "chainId": 31337, "nonce": nonce, "value": 0, "data": data, "gas": 1_000_000}
        fields |= {"maxFeePerGas": 10**9, "maxPriorityFeePerGas": 10**6} | ({"to": to} if to else {})
        return str(
            self.ask("eth_sendRawTransaction", "0x" + bytes(OWNER.sign_transaction(fields).raw_transaction).hex())[
                "result"
            ]
        )

    def hash_by_contract(self, address: str, block: int) -> str:
        call = {"to": address, "data": f"0x{block:064x}", "from": OWNER.address}
        return str(self.ask("eth_call", call, "latest")["result"])

    def counter(self) -> str:
        sent = self.send(DEPLOY)
        self.mine()
        made = self.ask("eth_getTransactionReceipt", sent)["result"]["contractAddress"]
        return checksum(bytes.fromhex(made[2:]))


def test_contracts_see_the_hashes_of_the_last_256_blocks() -> None:
    driver = Driver()
    address = driver.counter()
    driver.mine(300)
    head = driver.chain.head.number
    assert driver.hash_by_contract(address, head - 1) == driver.chain.blocks[head - 1].hash
    assert driver.hash_by_contract(address, head - 256) == driver.chain.blocks[head - 256].hash
    assert int(driver.hash_by_contract(address, head - 257), 16) == 0
    assert int(driver.hash_by_contract(address, head), 16) == 0


def test_a_reorganisation_undoes_state_and_changes_hashes() -> None:
    driver = Driver()
    address = driver.counter()
    driver.mine(3)
    sent = driver.send(b"", address)
    driver.mine(2)
    number = driver.chain.head.number
    before = driver.chain.blocks[number - 1].hash
    assert driver.ask("eth_getTransactionReceipt", sent)["result"]["status"] == "0x1"
    assert driver.chain.reorganise(2, lose=0.0) == 2
    assert driver.chain.head.number == number + 1
    assert driver.ask("eth_getTransactionReceipt", sent)["result"] is None
    assert driver.chain._evm.storage(address, 0) == 0
    driver.mine()
    assert driver.ask("eth_getTransactionReceipt", sent)["result"]["status"] == "0x1"
    assert driver.chain._evm.storage(address, 0) == 1
    now = driver.chain.blocks[number - 1].hash
    assert before != now == driver.hash_by_contract(address, number - 1)


def test_a_halted_sequencer_makes_no_block_and_a_bad_one_drops() -> None:
    driver = Driver()
    driver.chain.sequencer.halted = True
    driver.mine(3)
    assert driver.chain.head.number == 0
    driver.chain.sequencer.halted, driver.chain.sequencer.drop = False, 1.0
    sent = driver.send(DEPLOY)
    driver.mine()
    assert driver.ask("eth_getTransactionByHash", sent)["result"] is None


def test_only_instructions_are_replaced() -> None:
    assert with_balance_for_hash(bytes.fromhex("6040614040405f40")) == bytes.fromhex("6040614040315f31")
    assert sys.version_info < (3, 13)
