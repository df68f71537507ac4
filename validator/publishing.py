"""Publishes the documents behind our revealed votes: evidence for everybody, secret until then."""

import logging
from functools import partial

from protocol.errors import MusterError
from runtime.orchestrator_client import OrchestratorClient
from validator.transaction_tasks import TransactionTasks
from validator.verdict_store import VerdictStore

log = logging.getLogger("muster.validator")


class VerdictPublisher:
    """Thread-safe. Without a service (None) nothing can be published."""

    def __init__(
        self, orchestrator: OrchestratorClient | None, verdicts: VerdictStore, tasks: TransactionTasks
    ) -> None:
        self._orchestrator, self._verdicts, self._tasks = orchestrator, verdicts, tasks
        self._published: set[bytes] = set()

    def publish(self, digest: bytes) -> None:
        """Upload the document of a revealed ballot."""
        document = self._verdicts.document(digest)
        if self._orchestrator is None or document is None or digest in self._published:
            return
        try:
            self._orchestrator.upload_verdict(document)
            self._published.add(digest)
        except MusterError as error:
            log.info("verdict %s is not published yet: %s", digest.hex()[:12], error)

    def publish_later(self, digest: bytes, head: int) -> None:
        """Publish in the background what a kill kept from it."""
        if self._orchestrator and digest not in self._published and self._verdicts.document(digest) is not None:
            what = f"verdict {digest.hex()[:12]} is published"
            self._tasks.run(("publish", digest), head, what, partial(self.publish, digest), quiet=True)
