"""Do the services answer, and are they the right ones: deployment, chain, bucket, orchestrator."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from cli.doctor.base import Prerequisite, failed, judged, note, ok
from protocol.encoding import load_document
from protocol.errors import ConfigError, IntegrityError, MusterError, UnreachableError

if TYPE_CHECKING:
    from protocol.api.endpoints import Get

A = TypeVar("A")
_SECONDS = 5.0


class AnswersOtherwiseError(UnreachableError):
    """A service answers, but not with the document."""


class NotKnownError(AnswersOtherwiseError):
    """A service answers that it has no such document."""


def look(s3: Path | None, orchestrator: str | None) -> Iterator[Prerequisite]:
    """`s3`: a JSON file of `S3Settings`."""
    if s3:
        yield judged("s3", lambda: _bucket(s3))
    else:
        yield note("s3", "none named (--s3)")
    if orchestrator:
        yield judged("orchestrator", lambda: _orchestrator(orchestrator))


def deployment(path: Path) -> tuple[Prerequisite, str | None, int | None]:
    """Whether the deployment file is in order; an RPC URL and the chain id that it names (None if it is not)."""
    from cli.session import deployment_rpc, load_deployment

    try:
        suite = load_deployment(path)
    except MusterError as error:
        return failed("deployment", error.what, error.hint), None, None
    try:
        url = deployment_rpc(suite, None)[0]
    except MusterError:
        url = None
    return ok("deployment", f"{path}: {suite.network}, chain {suite.chain_id}"), url, suite.chain_id


def _bucket(path: Path) -> str:
    from storage.s3 import Bucket, S3Settings

    settings = load_document(path, S3Settings)
    bucket = Bucket(settings)
    next(iter(bucket.list("manifests/")), None)
    return f"bucket {settings.bucket} at {settings.endpoint} can be read"


def _orchestrator(url: str) -> str:
    from protocol.api.endpoints import HEALTH

    return f"{url} answers, version {ask_orchestrator(url, HEALTH).version}"


def ask_orchestrator(url: str, endpoint: "Get[A]") -> "A":
    """A public document of a pool's service. Raises NotKnownError if it has none, ConfigError if no such service
    answers, UnreachableError."""
    from runtime.signed_client import ClientLimits, ServiceError, SignedClient

    limits = ClientLimits(timeout=_SECONDS, attempts=1, exchange=4 * _SECONDS)
    client, where = SignedClient(url, limits=limits), url.rstrip("/") + endpoint.path
    try:
        return client.get(endpoint)
    except ServiceError as error:
        if error.status == 404:
            raise NotKnownError(f"the orchestrator {where} answers 404", "check the URL") from None
        what = f"the orchestrator {where} answers {error.status}"
        raise AnswersOtherwiseError(what, "check the URL") from None
    except UnreachableError as error:
        what = f"the orchestrator {where} does not answer ({error.what})"
        raise UnreachableError(what, "start it or correct the URL") from None
    except IntegrityError as error:
        raise ConfigError(f"{url} is not a muster orchestrator: {error.what}", "check the URL") from None
    finally:
        client.close()
