"""What our chain code and web3 are to each other: docs/design/architecture.md says why not all goes through web3."""

import subprocess
import sys
from typing import Any, cast

import pytest
from eth_abi.abi import encode
from web3 import Web3
from web3.exceptions import BlockNotFound

from chain import abi
from chain.rpc import ChainReader, FailoverProvider
from tests.chain.conftest import SELF
from tests.chain.proxy import Proxy
from tests.conftest import Chain, Deployed


def test_any_web3_program_can_use_the_provider(chain: Chain, proxy: Proxy) -> None:
    proxy.down = True
    w3 = Web3(FailoverProvider([proxy.url, chain.url], 31337))
    assert (w3.eth.chain_id, w3.eth.get_block(0)["number"]) == (31337, 0)
    with w3.batch_requests() as batch:
        batch.add(w3.eth.get_block(0))
        batch.add(w3.eth.get_balance(Web3.to_checksum_address(SELF)))
        block, balance = cast(list[Any], batch.execute())
    assert (block["number"], balance) == (0, 0)


def test_web3_refuses_text_that_is_not_utf8_and_we_do_not(deployed: Deployed) -> None:
    (event,) = [one for one in abi.load("Pools").events.values() if one.name == "MirrorAnnounced"]
    words = [encode(["uint256"], [1]) for _ in event.indexed.types]
    plain = ["bytes" if kind == "string" else kind for kind in event.plain.types]
    data = encode(plain, [b"\xff\xfe" if kind == "bytes" else 1 for kind in plain])
    assert event.decode([event.topic, *words], data)["uri"] == "��"
    with pytest.raises(UnicodeDecodeError):
        ChainReader(FailoverProvider([deployed.chain.url], 31337)).w3.codec.decode(event.plain.types, data)


def test_a_batch_of_web3_loses_all_for_one_that_is_missing_and_ours_does_not(anvil: Chain) -> None:
    reader = ChainReader(FailoverProvider([anvil.url], 31337))
    genesis, missing = reader.blocks([0, 1 << 40])
    assert genesis is not None
    assert missing is None
    with reader.w3.batch_requests() as batch:
        batch.add(reader.w3.eth.get_block(0))
        batch.add(reader.w3.eth.get_block(1 << 40))
        with pytest.raises(BlockNotFound):
            batch.execute()


def test_a_contract_cannot_make_us_fetch_addresses_that_it_names(chain: Chain, proxy: Proxy) -> None:
    """EIP-3668: a revert that names URLs, which web3 would ask."""
    names: list[Any] = [SELF, [proxy.url + "/{sender}/{data}"], b"", b"1234", b""]
    lookup = "0x556f1830" + encode(["address", "string[]", "bytes", "bytes4", "bytes"], names).hex()
    proxy.rule = lambda request: (
        {"error": {"code": 3, "message": "execution reverted", "data": lookup}}
        if request["method"] == "eth_call"
        else None
    )
    reader = ChainReader(FailoverProvider([proxy.url], 31337))
    with pytest.raises(Exception, match="a call was refused: Unknown"):
        reader.ask("a call", lambda eth: eth.call({"to": Web3.to_checksum_address(SELF)}))
    assert proxy.calls == ["eth_chainId", "eth_call"]


@pytest.mark.parametrize("program", ["import protocol.seeds, protocol.signing", "import cli.main"])
def test_who_needs_no_chain_does_not_wait_for_web3(program: str) -> None:
    code = f"import sys; {program}; sys.exit('web3' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=60, check=False).returncode == 0
