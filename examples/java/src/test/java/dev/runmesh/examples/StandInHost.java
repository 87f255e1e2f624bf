package dev.runmesh.examples;

import io.grpc.Context;
import io.grpc.Contexts;
import io.grpc.Metadata;
import io.grpc.Server;
import io.grpc.ServerCall;
import io.grpc.ServerCallHandler;
import io.grpc.ServerInterceptor;
import io.grpc.Status.Code;
import io.grpc.stub.StreamObserver;
import java.io.IOException;
import java.util.List;
import java.util.concurrent.CopyOnWriteArrayList;
import runmesh.v1.HostAPIServiceGrpc;
import runmesh.v1.HostApi.GetStateRequest;
import runmesh.v1.HostApi.GetStateResponse;
import runmesh.v1.HostApi.PageHistoryRequest;
import runmesh.v1.HostApi.PageHistoryResponse;
import runmesh.v1.HostApi.SetStateRequest;
import runmesh.v1.HostApi.SetStateResponse;
import runmesh.v1.HostApi.StateEntry;

/** A host's calls for one value of state, behind a real socket; it refuses everything else. */
final class StandInHost extends HostAPIServiceGrpc.HostAPIServiceImplBase
    implements ServerInterceptor, AutoCloseable {
  /** What came with each call. */
  final List<Metadata> calls = new CopyOnWriteArrayList<>();

  /** Whether each call had a deadline. */
  final List<Boolean> deadlines = new CopyOnWriteArrayList<>();

  private final Server server;
  private long value = 6;
  private long version = 3;

  /** How many writes find that another one was faster. */
  int faster = 1;

  StandInHost(Address address) throws IOException {
    server = address.listen().addService(this).intercept(this).build().start();
  }

  @Override
  public <Q, A> ServerCall.Listener<Q> interceptCall(
      ServerCall<Q, A> call, Metadata headers, ServerCallHandler<Q, A> next) {
    calls.add(headers);
    deadlines.add(Context.current().getDeadline() != null);
    return Contexts.interceptCall(Context.current(), call, headers, next);
  }

  @Override
  public void getState(GetStateRequest request, StreamObserver<GetStateResponse> observer) {
    StateEntry.Builder entry =
        StateEntry.newBuilder()
            .setKey(request.getKey())
            .setValueJson(Long.toString(value))
            .setVersion(version);
    observer.onNext(GetStateResponse.newBuilder().setEntry(entry).build());
    observer.onCompleted();
  }

  @Override
  public void setState(SetStateRequest request, StreamObserver<SetStateResponse> observer) {
    if (faster > 0) {
      faster--;
      value++;
      version++;
    }
    if (request.getExpectedVersion() != version) {
      observer.onError(Refusal.of(Code.ABORTED, "CONFLICT", "the version is stale"));
      return;
    }
    value = Long.parseLong(request.getValueJson());
    observer.onNext(SetStateResponse.newBuilder().setVersion(++version).build());
    observer.onCompleted();
  }

  @Override
  public void pageHistory(
      PageHistoryRequest request, StreamObserver<PageHistoryResponse> observer) {
    observer.onError(Refusal.of(Code.PERMISSION_DENIED, "UNAUTHORIZED", "history is not granted"));
  }

  @Override
  public void close() {
    server.shutdownNow();
  }
}
