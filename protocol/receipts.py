"""Upload receipts: a service's signed statement that a rollout file was in its bucket. Court takes it for its word."""

from pydantic import Field

from protocol import signing
from protocol.accounts import LocalAccount
from protocol.api.base import Address, Hex64, ResponseBody, Signature, Size
from protocol.errors import IntegrityError
from protocol.identity import PoolId

DOMAIN = "muster-receipts"
STRUCT = "UploadReceipt(uint256 pool,address node,bytes32 sha256,uint256 size,uint256 time)"


class UploadReceipt(ResponseBody):
    """The file of `size` bytes that `node` made for `pool` was in the bucket at `time` (Unix seconds). `signature` is
    the EIP-712 signature of STRUCT by `signer`, the service's key on chain; Court takes it in the service's stead."""

    pool: int = Field(ge=0, lt=1 << 256)
    node: Address
    sha256: Hex64
    size: Size
    time: int = Field(ge=0, lt=1 << 40)
    signer: Address
    signature: Signature

    @property
    def on_chain(self) -> tuple[int, int, bytes]:
        """`Receipt` of contracts/src/libraries/Types.sol."""
        return self.size, self.time, bytes.fromhex(self.signature[2:])

    def check(self, pool: PoolId, node: str, sha256: str, size: int) -> None:
        """Raise IntegrityError unless `signer` signed exactly this, for that file of that node in that pool."""
        if (self.pool, self.node, self.sha256, self.size) != (pool.pool, node, sha256, size):
            raise IntegrityError("the upload receipt is for something else", "tell the service's owner")
        digest = receipt_digest(pool, node, sha256, size, self.time)
        if signing.recover(digest, bytes.fromhex(self.signature[2:])) != self.signer:
            raise IntegrityError(f"the upload receipt is not signed by {self.signer}", "tell the service's owner")


class ReceiptSigner:
    """A service's key and the pool that it serves."""

    def __init__(self, account: LocalAccount, pool: PoolId) -> None:
        self._account, self.pool = account, pool

    def sign(self, node: str, sha256: str, size: int, time: int) -> UploadReceipt:
        """Sign the receipt for a file; `sha256` in hex. The same values give the same signature."""
        signature = signing.sign(self._account, receipt_digest(self.pool, node, sha256, size, time))
        return UploadReceipt(
            pool=self.pool.pool,
            node=node,
            sha256=sha256,
            size=size,
            time=time,
            signer=self._account.address,
            signature="0x" + signature.hex(),
        )


def receipt_digest(pool: PoolId, node: str, sha256: str, size: int, time: int) -> bytes:
    """Return the 32 bytes that a receipt's signature covers."""
    return signing.digest(pool.domain(DOMAIN), STRUCT, pool.pool, node, bytes.fromhex(sha256), size, time)
