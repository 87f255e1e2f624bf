"""The gRPC plugin that grpcio-tools carries inside its protoc, as a plugin that buf can call.

Speaks the protoc plugin protocol: a CodeGeneratorRequest on stdin, a CodeGeneratorResponse on
stdout (see google/protobuf/compiler/plugin.proto).
"""

import sys
import tempfile
from pathlib import Path

from google.protobuf.compiler import plugin_pb2
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from grpc_tools import protoc


def generate(request: plugin_pb2.CodeGeneratorRequest) -> plugin_pb2.CodeGeneratorResponse:
    """Runs the built-in plugin over the files to generate and returns what it wrote."""
    response = plugin_pb2.CodeGeneratorResponse(
        supported_features=plugin_pb2.CodeGeneratorResponse.FEATURE_PROTO3_OPTIONAL
    )
    with tempfile.TemporaryDirectory(prefix="runmesh-stubs-") as workshop:
        descriptors = Path(workshop, "contract.binpb")
        descriptors.write_bytes(FileDescriptorSet(file=request.proto_file).SerializeToString())
        out = Path(workshop, "out")
        out.mkdir()
        status = protoc.main(
            [
                "protoc",
                f"--descriptor_set_in={descriptors}",
                f"--grpc_python_out={out}",
                *request.file_to_generate,
            ]
        )
        if status != 0:
            response.error = f"protoc ended with status {status}; its own words are on stderr"
            return response
        for path in sorted(out.rglob("*.py")):
            response.file.add(
                name=path.relative_to(out).as_posix(), content=path.read_text("utf-8")
            )
    return response


if __name__ == "__main__":
    asked = plugin_pb2.CodeGeneratorRequest.FromString(sys.stdin.buffer.read())
    sys.stdout.buffer.write(generate(asked).SerializeToString())
