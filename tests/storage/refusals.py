"""What S3 servers answer, and clients of a fake one: one object, a bucket, an upload ticket."""

import base64
import hashlib
import time
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import NamedTuple

from protocol.api.work import UploadTicket
from storage.keys import object_key
from storage.s3 import AccessKey, Bucket, S3Settings, sign_url
from tests.storage.mirror import send

DATA = b"data" * 10
KEY = object_key("shards", hashlib.sha256(DATA).digest())
LISTING = b"<ListBucketResult><KeyCount>0</KeyCount><IsTruncated>false</IsTruncated></ListBucketResult>"
ACCESS = AccessKey(access_key="a", secret_key="b")


class Refusal(NamedTuple):
    """A server's answer: HTTP status, and the code and message of its XML document."""

    server: str
    status: int
    code: str
    message: str

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        handler.rfile.read(int(handler.headers.get("Content-Length") or 0))
        body = f"<?xml version='1.0'?><Error><Code>{self.code}</Code><Message>{self.message}</Message></Error>".encode()
        send(handler, self.status, b"" if handler.command == "HEAD" else body)


def bucket_at(url: str) -> Bucket:
    return Bucket(S3Settings(endpoint=url, bucket="muster", credentials=Path("none")), ACCESS)


def ticket(url: str) -> UploadTicket:
    """For DATA."""
    checksum = base64.b64encode(hashlib.sha256(DATA).digest()).decode()
    headers = {"content-length": str(len(DATA)), "if-none-match": "*", "x-amz-checksum-sha256": checksum}
    signed = sign_url("PUT", f"{url}/muster/{KEY}", headers, 900, "us-east-1", ACCESS)
    return UploadTicket(url=signed, headers=headers, expires=int(time.time()) + 900)
