from __future__ import annotations

import io
import os
import threading
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.contract.store_contract import SharedStoreContract, StoreContract
from tests.real.s3_server import S3Server
from timeline.errors import (
    AlreadyExistsError,
    ConfigError,
    NotFoundError,
    StoreError,
    StoreUnavailableError,
    TidelineError,
)
from timeline.fsspec_store import open_store
from timeline.local_store import TEMPORARY_FOLDER, LocalStore
from timeline.store import MemoryStore, ObjectStore


class TestMemoryStore(StoreContract):
    @pytest.fixture
    def store(self) -> ObjectStore:
        return MemoryStore()


class TestLocalStore(SharedStoreContract):
    keys_raced = 300
    process_keys_raced = 200

    @pytest.fixture
    def store(self, tmp_path: Path) -> ObjectStore:
        return open_store(str(tmp_path / "lake"))


@pytest.mark.real
@pytest.mark.slow
class TestS3Store(SharedStoreContract):
    keys_raced = 30

    @pytest.fixture
    def options(self, s3: S3Server) -> dict[str, Any]:
        return s3.options

    @pytest.fixture
    def store(self, s3: S3Server) -> ObjectStore:
        return open_store(f"s3://lake/{uuid.uuid4().hex}/below", s3.options)
