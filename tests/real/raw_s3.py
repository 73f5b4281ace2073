"""S3 by a separate client, to check the effects of the project's store."""

from __future__ import annotations

from typing import Any

import botocore.session

from tests.real.s3_server import S3Server

BUCKET = "lake"


class RawS3:
    """Parts of the bucket that a store does not show: unfinished uploads, and keys of foreign objects."""

    def __init__(self, server: S3Server) -> None:
        self._client: Any = botocore.session.get_session().create_client(
            "s3",
            endpoint_url=server.endpoint_url,
            region_name="us-east-1",
            aws_access_key_id=server.key,
            aws_secret_access_key=server.secret,
        )

    def put(self, key: str) -> None:
        """Put an empty object under any key."""
        self._client.put_object(Bucket=BUCKET, Key=key)

    def keys(self, prefix: str) -> list[str]:
        """All keys below a prefix, at most a thousand, sorted."""
        page = self._client.list_objects_v2(Bucket=BUCKET, Prefix=prefix)
        return sorted(str(entry["Key"]) for entry in page.get("Contents", []))

    def begin_upload(self, key: str) -> None:
        """Start a multipart upload and leave it unfinished."""
        self._client.create_multipart_upload(Bucket=BUCKET, Key=key)

    def uploads(self, prefix: str) -> list[str]:
        """Keys of unfinished uploads, one for each upload, sorted."""
        found: list[str] = []
        while True:
            marker = {"KeyMarker": found[-1]} if found else {}
            page = self._client.list_multipart_uploads(Bucket=BUCKET, Prefix=prefix, **marker)
            found += [str(upload["Key"]) for upload in page.get("Uploads", [])]
            if not page["IsTruncated"]:
                return sorted(found)
