"""Ranges of S3 objects by botocore's own client, on the thread that wants them.

    s3fs file system -> client with its settings -> chunks of 256 KB

s3fs reads through one event loop for all threads, which copies every byte three times and is the whole of one core at
half the speed that the network of this machine gives. botocore comes with s3fs, so nothing more is installed. Whatever
s3fs was told that this client is not (customer keys, versions) goes through s3fs as before.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

CHUNK_BYTES = 256 << 10  # stays in the cache between socket and buffer
_LOCK = threading.Lock()


def range_client(filesystem: Any) -> Any | None:
    """A client with the settings of an s3fs file system, made once for it; None where s3fs itself must read."""
    if "s3" not in filesystem.protocol or filesystem.s3_additional_kwargs or filesystem.version_aware:
        return None
    with _LOCK:
        known = getattr(filesystem, "_trajsoup_client", None)
        if known is None:
            known = filesystem._trajsoup_client = _make(filesystem)
        return known


def read_chunks(client: Any, filesystem: Any, key: str, *, start: int, end: int) -> Iterator[bytes]:
    """The bytes from `start` to `end`, as they arrive. Errors are those that s3fs would raise."""
    from botocore.exceptions import ClientError
    from s3fs.errors import translate_boto_error

    bucket, name, _ = filesystem.split_path(key)
    try:
        answer = client.get_object(Bucket=bucket, Key=name, Range=f"bytes={start}-{end - 1}", **filesystem.req_kw)
        yield from answer["Body"].iter_chunks(CHUNK_BYTES)
    except ClientError as error:
        raise translate_boto_error(error) from error


def _make(filesystem: Any) -> Any:
    from botocore import UNSIGNED
    from botocore.config import Config
    from botocore.session import Session

    given = {
        "aws_access_key_id": filesystem.key,
        "aws_secret_access_key": filesystem.secret,
        "aws_session_token": filesystem.token,
    }
    settings: dict[str, Any] = dict(filesystem.config_kwargs)
    if filesystem.anon:
        given, settings["signature_version"] = {}, UNSIGNED
    given |= {"endpoint_url": filesystem.endpoint_url, "use_ssl": filesystem.use_ssl, **filesystem.client_kwargs}
    session = Session(**filesystem.kwargs)
    known = {name: value for name, value in given.items() if value is not None}
    return session.create_client("s3", config=Config(**settings), **known)
