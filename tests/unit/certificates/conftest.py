"""An authority for development, in a folder of the test's own."""

from pathlib import Path

import pytest

from host_service.certificates.authority import Authority


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority.create(tmp_path / "certs")
