"""Ranges of S3 objects on the thread that wants them, with little work for each.

    s3fs file system -> botocore client with its settings -> signed range requests -> chunks of 256 KB

s3fs reads through one event loop for all threads, and a client's call costs milliseconds of its own: together more than
the bytes. So a request is signed by botocore and sent by its HTTP session directly; the URL of an object is worked out
once. Whatever is not answered with the range asked for (another region, a missing object) is asked for again through the
client, which knows what to do about it. What this client cannot know (customer keys, versions) is left to s3fs.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

CHUNK_BYTES = 256 << 10  # stays in the processor's cache between socket and buffer
ANSWERED = (200, 206)  # some servers say 200 and send the range nevertheless: its length tells
MISUNDERSTOOD = (301, 307, 400, 403)  # another region or way of signing, which the client finds out by itself
_LOCK = threading.Lock()


class RangeReader:
    """Reads ranges of the objects that one s3fs file system reaches. May be used from many threads."""

    def __init__(self, filesystem: Any) -> None:
        from botocore.session import Session

        self.filesystem = filesystem
        self._session = Session(**filesystem.kwargs)
        self._given, self._client = _client(filesystem, self._session)
        self._urls: dict[str, str] = {}
        self._direct = True

    def read_into(self, view: memoryview, key: str, *, start: int) -> int:
        """Fill `view` with the bytes from `start` on; return how many came. Errors are those that s3fs would raise."""
        ranges = f"bytes={start}-{start + len(view) - 1}"
        if self._direct:
            answer = self._send(key, ranges)
            if answer.status in ANSWERED and answer.headers.get("Content-Length") == str(len(view)):
                return _receive(answer, view)
            answer.drain_conn()
            answer.release_conn()
            self._direct = answer.status not in (*ANSWERED, *MISUNDERSTOOD)  # a busy store is asked directly again
        return _copy(self._ask(key, ranges), view)

    def _ask(self, key: str, ranges: str) -> Iterator[bytes]:
        from botocore.exceptions import ClientError
        from s3fs.errors import translate_boto_error

        bucket, name, _ = self.filesystem.split_path(key)
        try:
            body = self._client.get_object(Bucket=bucket, Key=name, Range=ranges, **self.filesystem.req_kw)["Body"]
        except ClientError as error:
            raise translate_boto_error(error) from error
        return body.iter_chunks(CHUNK_BYTES)

    def _send(self, key: str, ranges: str) -> Any:
        from botocore.awsrequest import AWSRequest

        request = AWSRequest(method="GET", url=self._url(key), headers={"Range": ranges}, stream_output=True)
        self._sign(request)
        return self._client._endpoint.http_session.send(request.prepare()).raw

    def _url(self, key: str) -> str:
        if key not in self._urls:
            bucket, name, _ = self.filesystem.split_path(key)
            signed = self._client.generate_presigned_url("get_object", {"Bucket": bucket, "Key": name})
            self._urls[key] = signed.split("?")[0]
        return self._urls[key]

    def _sign(self, request: Any) -> None:
        from botocore.auth import S3SigV4Auth
        from botocore.credentials import Credentials

        if self.filesystem.anon:
            return
        if "aws_access_key_id" in self._given:
            known = Credentials(
                self._given["aws_access_key_id"],
                self._given["aws_secret_access_key"],
                self._given.get("aws_session_token"),
            )
        else:
            known = self._session.get_credentials()  # renews itself
        S3SigV4Auth(known.get_frozen_credentials(), "s3", self._client.meta.region_name).add_auth(request)


def _receive(answer: Any, view: memoryview) -> int:
    """From the socket straight into the buffer, where urllib3 lets us see the response beneath its own."""
    from http.client import HTTPResponse  # with it comes ssl: no command that stays here should load it

    response = getattr(answer, "_fp", None)
    if not isinstance(response, HTTPResponse):
        return _copy(answer.stream(CHUNK_BYTES), view)
    done = 0
    while done < len(view) and (got := response.readinto(view[done:])):
        done += got
    if done == len(view):
        answer.release_conn()
    else:
        answer.close()
    return done


def _copy(chunks: Iterator[bytes], view: memoryview) -> int:
    done = 0
    for chunk in chunks:
        view[done : done + len(chunk)] = chunk
        done += len(chunk)
    return done


def range_reader(filesystem: Any) -> RangeReader | None:
    """The reader of an s3fs file system, made once; None where s3fs itself must read."""
    if "s3" not in filesystem.protocol:
        return None
    if filesystem.s3_additional_kwargs or filesystem.version_aware or filesystem.req_kw:
        return None
    with _LOCK:
        known = getattr(filesystem, "_trajsoup_ranges", None)
        if known is None:
            known = filesystem._trajsoup_ranges = RangeReader(filesystem)
        return known


def _client(filesystem: Any, session: Any) -> tuple[dict[str, Any], Any]:
    from botocore import UNSIGNED
    from botocore.config import Config

    given = {
        "aws_access_key_id": filesystem.key,
        "aws_secret_access_key": filesystem.secret,
        "aws_session_token": filesystem.token,
        "endpoint_url": filesystem.endpoint_url,
        "use_ssl": filesystem.use_ssl,
        **filesystem.client_kwargs,
    }
    settings: dict[str, Any] = dict(filesystem.config_kwargs)
    if filesystem.anon:
        given = {name: value for name, value in given.items() if not name.startswith("aws_")}
        settings["signature_version"] = UNSIGNED
    given = {name: value for name, value in given.items() if value is not None}
    return given, session.create_client("s3", config=Config(**settings), **given)
