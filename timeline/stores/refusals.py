"""Errors of a disk or store that last until a person acts: no space left, or missing rights."""

from __future__ import annotations

import errno
import re

from timeline.errors import StoreFullError, StoreRefusedError, StoreUnavailableError

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
_NO_RIGHT = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})
_FULL_WORDS = ("No space left on device", "Disk quota exceeded")
"""Texts of errors without a number: delta-rs and Java pass on only the system's message."""

REFUSALS = frozenset(
    {
        "AccessDenied",
        "AccountProblem",
        "AllAccessDisabled",
        "AuthorizationHeaderMalformed",
        "ExpiredToken",
        "InvalidAccessKeyId",
        "InvalidToken",
        "RequestTimeTooSkewed",
        "SignatureDoesNotMatch",
        "TokenRefreshRequired",
        "NoCredentialsError",
        "PartialCredentialsError",
        "Forbidden",
        "Unauthorized",
        "401",
        "403",
    }
)
"""S3's codes (API reference, error responses) and botocore's errors: wrong key, secret or token, or missing rights."""

_REFUSED_WORDS = re.compile(rf"\b(?:{'|'.join(sorted(name for name in REFUSALS if not name.isdigit()))})\b")
_CHECK_STORAGE = "check storage (key, secret, token), this machine's clock, and what their owner may do there"


def store_error(what: str, error: BaseException, said: str) -> StoreUnavailableError:
    """The store error for a failed file system call, with the next step if it is known.

    Args:
        what: the object, file or folder of the call.
        error: the error of the call.
        said: the error's text, without secrets.
    """
    number = getattr(error, "errno", None)
    if is_full(error):
        return StoreFullError(
            f"{what}: {said}; the disk is full: free space there, then start again. "
            "Nothing that is committed was touched"
        )
    if number in _NO_RIGHT:
        return StoreRefusedError(f"{what}: {said}; let the user of this process read and write there")
    return StoreUnavailableError(f"{what}: {said}")


def refusal(what: str, code: str, said: str) -> StoreRefusedError | None:
    """The error for an object store that refuses a job's key or rights; None for any other error.

    Args:
        what: the object or table of the call.
        code: the store's error code, or the error's class; "" if only `said` is known.
        said: the error's text, without secrets.
    """
    if code in REFUSALS if code else _REFUSED_WORDS.search(said) is not None:
        told = f"{code}: {said}" if code else said
        return StoreRefusedError(f"{what}: {told}; {_CHECK_STORAGE}")
    return None


def is_full(error: BaseException) -> bool:
    """Whether an error means that a disk or a quota is used up."""
    return getattr(error, "errno", None) in _FULL or (
        isinstance(error, Exception) and any(words in str(error) for words in _FULL_WORDS)
    )
