"""How what is said in a run is signed and stored, a site's note or an entry of the log: the canonical JSON
{its name, signature}, in the one encoding, by the one signer, at the one place."""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar, cast

from pydantic import BaseModel

from protocol import signing
from protocol.accounts import LocalAccount
from protocol.api.base import SignedBody
from protocol.encoding import canonical_json
from protocol.errors import MusterError
from protocol.signing import check_signer, open_canonical
from protocol.sites.identity import DOMAIN
from protocol.sites.run import SitesRun

S = TypeVar("S", bound=SignedBody)


@dataclass(frozen=True)
class RunSeal(Generic[S]):
    """Of one kind of words. `stored`: the model of field `name` and `signature`; `struct`: what is signed, of the pool,
    the word's `place`, and the SHA-256 of its canonical JSON. `longest`: bytes; `called`: in what is `refused`."""

    stored: type[BaseModel]
    name: str
    struct: str
    place: Callable[[S], tuple[signing.Value, ...]]
    longest: int
    called: str
    refused: type[MusterError]

    def seal(self, said: S, run: SitesRun, account: LocalAccount) -> bytes:
        """The stored bytes; whose word it is the caller has checked."""
        signature = "0x" + signing.sign(account, _InRun(self, said, run).signed_digest).hex()
        return canonical_json(self.stored(**{self.name: said, "signature": signature}).model_dump(mode="json"))

    def open(self, data: bytes, run: SitesRun, signer: str, misplaced: Callable[[S], str]) -> S:
        """A stranger's bytes as what `signer` said. `misplaced`: what is wrong with the place of a word, empty if
        nothing is. Raises `refused`."""
        signed = open_canonical(data, self.stored, self.longest, self.called, self.refused)
        said = cast(S, getattr(signed, self.name))
        if why := misplaced(said):
            raise self.refused(why)
        check_signer(_InRun(self, said, run), signed.signature, signer, self.refused)  # type: ignore[attr-defined]
        return said


@dataclass(frozen=True)
class _InRun(Generic[S]):
    """A word and the run that it is signed for."""

    seal: RunSeal[S]
    said: S
    run: SitesRun

    @property
    def signed_digest(self) -> bytes:
        body = hashlib.sha256(canonical_json(self.said.model_dump(mode="json"))).digest()
        pool = self.run.pool_id
        return signing.digest(pool.domain(DOMAIN), self.seal.struct, pool.pool, *self.seal.place(self.said), body)
