"""A real S3-speaking server on loopback that knows one key, and the faults that a test asks it for."""

import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Thread
from typing import Any
from urllib.request import Request, urlopen

import boto3
from botocore.client import Config
from moto.moto_server.werkzeug_app import (
    DomainDispatcherApplication,
    MotoRequestHandler,
    create_backend_app,
)
from werkzeug.serving import make_server

BUCKET = "archive"
REGION = "us-east-1"
OWNER = json.dumps(
    {
        "Version": "2012-10-17",
        "Statement": [{"Effect": "Allow", "Action": "s3:*", "Resource": "*"}],
    }
)
BOX = json.dumps(
    {
        "Version": "2012-10-17",
        "Statement": [
            {
                "Effect": "Allow",
                "Action": ["s3:PutObject", "s3:GetObject", "s3:AbortMultipartUpload"],
                "Resource": f"arn:aws:s3:::{BUCKET}/*",
            }
        ],
    }
)
"""What a key for a box may do: write and read, and neither list nor delete."""


@dataclass(frozen=True)
class Key:
    """One access key of the server's."""

    id: str
    secret: str


@dataclass
class Bucket:
    """The server's one bucket, seen past every client under test."""

    url: str
    key: Key
    box_key: Key
    faults: list[int] = field(default_factory=list)
    """The statuses of the next answers to a write or a read of an object."""
    asked: list[tuple[str, str]] = field(default_factory=list)
    """Every request, as method and path with query."""

    @property
    def _client(self) -> Any:
        return boto3.client(
            "s3",
            endpoint_url=self.url,
            region_name=REGION,
            aws_access_key_id=self.key.id,
            aws_secret_access_key=self.key.secret,
            config=Config(s3={"addressing_style": "path"}, retries={"total_max_attempts": 1}),
        )

    def names(self) -> list[str]:
        """The key of every object."""
        pages = self._client.get_paginator("list_objects_v2").paginate(Bucket=BUCKET)
        return [entry["Key"] for page in pages for entry in page.get("Contents", ())]

    def read(self, name: str) -> bytes:
        content: bytes = self._client.get_object(Bucket=BUCKET, Key=name)["Body"].read()
        return content

    def write(self, name: str, content: bytes, **more: str) -> None:
        self._client.put_object(Bucket=BUCKET, Key=name, Body=content, **more)

    def delete(self, name: str) -> None:
        self._client.delete_object(Bucket=BUCKET, Key=name)

    def unfinished(self) -> list[str]:
        """Uploads in parts that were neither completed nor given up."""
        found = self._client.list_multipart_uploads(Bucket=BUCKET)
        return [upload["Key"] for upload in found.get("Uploads", ())]


class Silent(MotoRequestHandler):
    def log(self, *_: object) -> None:
        """Nothing is printed."""


@contextmanager
def serving() -> Iterator[Bucket]:
    """The server runs; at the end all that it held is gone."""
    server = make_server(
        "127.0.0.1",
        0,
        lambda *call: application(*call),
        threaded=True,
        request_handler=Silent,
    )
    bucket = Bucket(f"http://127.0.0.1:{server.port}", Key("any", "any"), Key("any", "any"))
    application = faulty(DomainDispatcherApplication(create_backend_app), bucket)
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        bucket._client.create_bucket(Bucket=BUCKET)
        bucket.key, bucket.box_key = made(bucket.url, OWNER), made(bucket.url, BOX)
        told(bucket.url, "reset-auth", b"0")
        yield bucket
    finally:
        # Its rights and objects are this process's: the next file's server would begin with them.
        told(bucket.url, "reset-auth", b"inf")
        told(bucket.url, "reset")
        server.shutdown()
        thread.join()
        server.server_close()


def made(url: str, policy: str) -> Key:
    """A key under that policy."""
    iam = boto3.client(
        "iam",
        endpoint_url=url,
        region_name=REGION,
        aws_access_key_id="any",
        aws_secret_access_key="any",
    )
    user = f"user-{len(policy)}"
    iam.create_user(UserName=user)
    iam.put_user_policy(UserName=user, PolicyName="it", PolicyDocument=policy)
    key = iam.create_access_key(UserName=user)["AccessKey"]
    return Key(key["AccessKeyId"], key["SecretAccessKey"])


def told(url: str, what: str, body: bytes = b"") -> None:
    plain = {"Content-Type": "text/plain"}
    with urlopen(Request(f"{url}/moto-api/{what}", body, plain, method="POST"), timeout=120):
        pass


Application = Callable[[dict[str, Any], Callable[..., object]], Iterable[bytes]]


def faulty(application: Application, bucket: Bucket) -> Application:
    """The application, which first gives the answers that were asked for."""

    def answered(environ: dict[str, Any], start: Callable[..., object]) -> Iterable[bytes]:
        path = environ["RAW_URI"]
        bucket.asked.append((environ["REQUEST_METHOD"], path))
        if bucket.faults and path.startswith(f"/{BUCKET}/"):
            environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
            start(f"{bucket.faults.pop(0)} Later", [("Content-Length", "0")])
            return []
        return application(environ, start)

    return answered
