"""What the contract tests share."""

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto

from tests.contract.buf import read_contract


@pytest.fixture(scope="session")
def contract() -> list[FileDescriptorProto]:
    """The project's own .proto files; what they import from protobuf is left out."""
    return [file for file in read_contract().file if file.package.startswith("runmesh.")]
