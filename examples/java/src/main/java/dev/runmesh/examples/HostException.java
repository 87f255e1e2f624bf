package dev.runmesh.examples;

import com.google.protobuf.Any;
import com.google.protobuf.InvalidProtocolBufferException;
import com.google.rpc.ErrorInfo;
import io.grpc.Metadata;
import io.grpc.MethodDescriptor;
import io.grpc.Status;
import io.grpc.protobuf.StatusProto;
import java.util.Set;

/** What a host, or the way to it, made of a call. Decide by its reason. */
final class HostException extends Exception {
  private static final long serialVersionUID = 1L;
  private static final Set<String> RETRYABLE = Set.of("RATE_LIMITED", "OVERLOADED", "UNAVAILABLE");

  private final String method;
  private final String reason;

  HostException(MethodDescriptor<?, ?> method, Status status, Metadata trailers) {
    super(status.getDescription(), status.getCause());
    this.method = method.getBareMethodName();
    this.reason = reasonOf(status, trailers);
  }

  /** Which call it was, such as {@code GetState}. */
  String method() {
    return method;
  }

  /** Why, as in the contract's {@code ErrorReason}, such as {@code NOT_FOUND}. */
  String reason() {
    return reason;
  }

  /** Whether the same call may succeed later in this run. */
  boolean isRetryable() {
    return RETRYABLE.contains(reason);
  }

  private static String reasonOf(Status status, Metadata trailers) {
    for (Any detail : StatusProto.fromStatusAndTrailers(status, trailers).getDetailsList()) {
      if (detail.is(ErrorInfo.class)) {
        try {
          ErrorInfo info = detail.unpack(ErrorInfo.class);
          if (info.getDomain().equals(Refusal.DOMAIN)) {
            return info.getReason();
          }
        } catch (InvalidProtocolBufferException error) {
          break; // the code says enough
        }
      }
    }
    // From gRPC itself, or from something between.
    return switch (status.getCode()) {
      case UNAUTHENTICATED -> "UNAUTHENTICATED";
      case PERMISSION_DENIED -> "UNAUTHORIZED";
      case NOT_FOUND -> "NOT_FOUND";
      case INVALID_ARGUMENT -> "INVALID_ARGUMENT";
      case RESOURCE_EXHAUSTED -> "OVERLOADED";
      case FAILED_PRECONDITION -> "INCOMPATIBLE";
      case ABORTED -> "CONFLICT";
      case ALREADY_EXISTS -> "ALREADY_EXISTS";
      case OUT_OF_RANGE -> "SEQUENCE_COMPACTED";
      case DEADLINE_EXCEEDED -> "DEADLINE_EXCEEDED";
      case UNIMPLEMENTED -> "NOT_IMPLEMENTED";
      case UNAVAILABLE, CANCELLED -> "UNAVAILABLE";
      default -> "RUNTIME_ERROR";
    };
  }
}
