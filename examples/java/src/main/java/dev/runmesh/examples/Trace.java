package dev.runmesh.examples;

import io.grpc.Context;
import io.grpc.Contexts;
import io.grpc.Metadata;
import io.grpc.ServerCall;
import io.grpc.ServerCallHandler;
import io.grpc.ServerInterceptor;
import java.util.List;

/** Keeps the trace context that a call came with, for the calls that are made because of it. */
final class Trace implements ServerInterceptor {
  private static final Context.Key<Metadata> KEPT = Context.keyWithDefault("trace", new Metadata());
  private static final List<Metadata.Key<String>> HEADERS =
      List.of(
          Metadata.Key.of("traceparent", Metadata.ASCII_STRING_MARSHALLER),
          Metadata.Key.of("tracestate", Metadata.ASCII_STRING_MARSHALLER));

  /** The trace context of the call that is being answered. */
  static Metadata current() {
    return KEPT.get();
  }

  @Override
  public <Q, A> ServerCall.Listener<Q> interceptCall(
      ServerCall<Q, A> call, Metadata headers, ServerCallHandler<Q, A> next) {
    Metadata kept = new Metadata();
    for (Metadata.Key<String> key : HEADERS) {
      String value = headers.get(key);
      if (value != null) {
        kept.put(key, value);
      }
    }
    return Contexts.interceptCall(Context.current().withValue(KEPT, kept), call, headers, next);
  }
}
