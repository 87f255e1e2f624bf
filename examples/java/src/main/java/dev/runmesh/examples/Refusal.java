package dev.runmesh.examples;

import com.google.protobuf.Any;
import com.google.rpc.ErrorInfo;
import io.grpc.Status;
import io.grpc.StatusRuntimeException;
import io.grpc.protobuf.StatusProto;

/** Errors as the contract wants them: with a reason beside the code. */
final class Refusal {
  /** Whose reasons they are. */
  static final String DOMAIN = "runmesh";

  private Refusal() {}

  /** Makes what a call is answered with that is refused. */
  static StatusRuntimeException of(Status.Code code, String reason, String message) {
    ErrorInfo info = ErrorInfo.newBuilder().setDomain(DOMAIN).setReason(reason).build();
    return StatusProto.toStatusRuntimeException(
        com.google.rpc.Status.newBuilder()
            .setCode(code.value())
            .setMessage(message)
            .addDetails(Any.pack(info))
            .build());
  }
}
