package dev.runmesh.examples;

import static io.grpc.Metadata.ASCII_STRING_MARSHALLER;

import com.google.protobuf.ByteString;
import io.grpc.CallOptions;
import io.grpc.Channel;
import io.grpc.ClientInterceptors;
import io.grpc.Context;
import io.grpc.Metadata;
import io.grpc.MethodDescriptor;
import io.grpc.Status;
import io.grpc.StatusException;
import io.grpc.stub.BlockingClientCall;
import io.grpc.stub.ClientCalls;
import io.grpc.stub.MetadataUtils;
import runmesh.v1.HostAPIServiceGrpc;
import runmesh.v1.HostApi.ArtifactHeader;
import runmesh.v1.HostApi.CreateArtifactRequest;
import runmesh.v1.HostApi.CreateArtifactResponse;
import runmesh.v1.Run.HostAccess;
import runmesh.v1.Types.ArtifactRef;

/**
 * Calls of HostAPIService for one run, to be made by its own thread: there the run's {@link
 * Context} gives each call the run's deadline, and ends it when the run is stopped.
 */
final class Host {
  private static final Metadata.Key<String> AUTHORIZATION =
      Metadata.Key.of("authorization", ASCII_STRING_MARSHALLER);
  private static final Metadata.Key<String> INSTANCE =
      Metadata.Key.of("runmesh-instance", ASCII_STRING_MARSHALLER);
  private static final int CHUNK_BYTES = 1 << 20;

  private final Connections connections;
  private final String address;
  private final Metadata headers = new Metadata();

  /**
   * Makes calls as a run may.
   *
   * @param access the address and the tokens that came with the run
   * @param trace what came with it of its trace
   */
  Host(Connections connections, HostAccess access, Metadata trace) {
    this.connections = connections;
    address = access.getAddress();
    headers.put(AUTHORIZATION, "Bearer " + access.getRunToken());
    headers.put(INSTANCE, access.getInstanceToken());
    headers.merge(trace);
  }

  /**
   * Makes any call with one answer, such as {@code call(HostAPIServiceGrpc.getGetStateMethod(),
   * ...)}.
   *
   * @throws HostException it was refused or failed
   * @throws InterruptedException the run has to end
   */
  <Q, A> A call(MethodDescriptor<Q, A> method, Q request)
      throws HostException, InterruptedException {
    try {
      return ClientCalls.blockingV2UnaryCall(channel(), method, CallOptions.DEFAULT, request);
    } catch (StatusException error) {
      throw failureOf(method, error);
    }
  }

  /**
   * Stores an artifact.
   *
   * @throws HostException it was refused or failed
   * @throws InterruptedException the run has to end
   */
  ArtifactRef upload(ArtifactHeader header, ByteString content)
      throws HostException, InterruptedException {
    var method = HostAPIServiceGrpc.getCreateArtifactMethod();
    try {
      BlockingClientCall<CreateArtifactRequest, CreateArtifactResponse> call =
          ClientCalls.blockingClientStreamingCall(channel(), method, CallOptions.DEFAULT);
      boolean open = call.write(CreateArtifactRequest.newBuilder().setHeader(header).build());
      for (int start = 0; open && start < content.size(); start += CHUNK_BYTES) {
        ByteString chunk = content.substring(start, Math.min(start + CHUNK_BYTES, content.size()));
        open = call.write(CreateArtifactRequest.newBuilder().setChunk(chunk).build());
      }
      call.halfClose();
      // Where the host ended the call before that, this tells why.
      CreateArtifactResponse answer = call.read();
      if (answer == null) {
        throw Status.INTERNAL.withDescription("the call ended without an answer").asException();
      }
      return answer.getArtifact();
    } catch (StatusException error) {
      throw failureOf(method, error);
    }
  }

  private Channel channel() throws StatusException {
    try {
      return ClientInterceptors.intercept(
          connections.to(address), MetadataUtils.newAttachHeadersInterceptor(headers));
    } catch (IllegalArgumentException error) {
      String why = "the host cannot be called from here: " + error.getMessage();
      throw Status.UNAVAILABLE.withDescription(why).asException();
    }
  }

  private static HostException failureOf(MethodDescriptor<?, ?> method, StatusException error)
      throws InterruptedException {
    Context scope = Context.current();
    boolean isLate = scope.getDeadline() != null && scope.getDeadline().isExpired();
    if (isLate || scope.isCancelled()) {
      throw new InterruptedException(); // the call ended because its run has to
    }
    return new HostException(method, error.getStatus(), error.getTrailers());
  }
}
