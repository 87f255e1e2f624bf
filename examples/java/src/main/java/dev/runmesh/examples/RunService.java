package dev.runmesh.examples;

import static java.util.concurrent.TimeUnit.NANOSECONDS;

import io.grpc.Context;
import io.grpc.Status.Code;
import io.grpc.StatusRuntimeException;
import io.grpc.stub.ServerCallStreamObserver;
import io.grpc.stub.StreamObserver;
import java.time.Duration;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.ScheduledExecutorService;
import runmesh.v1.Run.InterruptRequest;
import runmesh.v1.Run.InterruptResponse;
import runmesh.v1.Run.RunRequest;
import runmesh.v1.Run.RunResponse;
import runmesh.v1.RunServiceGrpc;

/** Runs runs, each on a thread of its own, until the process drains. */
final class RunService extends RunServiceGrpc.RunServiceImplBase {
  /** Runs at once: each has a thread. */
  static final int MAX_CONCURRENT_RUNS = 256;

  private static final RunFailure INTERRUPTED =
      new RunFailure("cancelled", "the run was interrupted");
  private static final RunFailure SHUT_DOWN =
      new RunFailure("runner.unavailable", "the process is shutting down", true, Map.of());

  private final Map<String, Runner> runners;
  private final Connections connections = new Connections();
  private final ExecutorService threads = Executors.newCachedThreadPool(RunService::daemon);
  private final ScheduledExecutorService timer =
      Executors.newSingleThreadScheduledExecutor(RunService::daemon);
  private final Set<Run> active = new HashSet<>();
  private boolean draining;

  /** Serves runners, by runner id. */
  RunService(Map<String, Runner> runners) {
    this.runners = Map.copyOf(runners);
  }

  @Override
  public void run(RunRequest request, StreamObserver<RunResponse> observer) {
    StatusRuntimeException refusal =
        accept(request, (ServerCallStreamObserver<RunResponse>) observer);
    if (refusal != null) {
      observer.onError(refusal);
    }
  }

  /** Every runner of this plugin has the capability {@code interrupt}. */
  @Override
  public void interrupt(InterruptRequest request, StreamObserver<InterruptResponse> observer) {
    List<Run> runs;
    synchronized (this) {
      runs = active.stream().filter(run -> run.id().equals(request.getRunId())).toList();
    }
    runs.forEach(run -> run.stop(INTERRUPTED));
    CompletableFuture.allOf(runs.stream().map(Run::ended).toArray(CompletableFuture<?>[]::new))
        .thenRun(
            () -> {
              observer.onNext(InterruptResponse.newBuilder().setWasActive(!runs.isEmpty()).build());
              observer.onCompleted();
            });
  }

  /** Takes no more runs. */
  synchronized void drain() {
    draining = true;
  }

  /** Stops the runs under way; their streams say that the process is shutting down. */
  synchronized void stopAll() {
    active.forEach(run -> run.stop(SHUT_DOWN));
  }

  /** Waits until no run is under way, or the time is over. */
  synchronized boolean awaitIdle(Duration time) throws InterruptedException {
    long end = System.nanoTime() + time.toNanos();
    while (!active.isEmpty()) {
      long left = end - System.nanoTime();
      if (left <= 0) {
        return false;
      }
      NANOSECONDS.timedWait(this, left);
    }
    return true;
  }

  private synchronized StatusRuntimeException accept(
      RunRequest request, ServerCallStreamObserver<RunResponse> stream) {
    StatusRuntimeException refusal = refusalOf(request);
    if (refusal != null) {
      return refusal;
    }
    Context.CancellableContext scope = scopeOf(request);
    Host host = new Host(connections, request.getHostAccess(), Trace.current());
    Run run = new Run(request.getContext(), host, scope, stream);
    active.add(run);
    Runner runner = runners.get(request.getRunnerId());
    threads.execute(
        () -> {
          try {
            scope.run(() -> run.execute(runner));
          } finally {
            release(run);
            scope.cancel(null);
          }
        });
    return null;
  }

  private void release(Run run) {
    synchronized (this) {
      active.remove(run);
      notifyAll();
    }
    run.ended().complete(null);
  }

  /** The call's context, which ends with the call, and earlier where the run's time is over. */
  private Context.CancellableContext scopeOf(RunRequest request) {
    Context call = Context.current();
    if (!request.hasTimeout()) {
      return call.withCancellation();
    }
    // As an attached runner has no other deadline, and a host may leave that of the call out.
    var timeout = request.getTimeout();
    Duration time = Duration.ofSeconds(timeout.getSeconds(), timeout.getNanos());
    return call.withDeadlineAfter(NANOSECONDS.convert(time), NANOSECONDS, timer);
  }

  private StatusRuntimeException refusalOf(RunRequest request) {
    if (draining) {
      return Refusal.of(
          Code.UNAVAILABLE, "UNAVAILABLE", "the process is shutting down and takes no more runs");
    }
    if (!runners.containsKey(request.getRunnerId())) {
      return Refusal.of(Code.NOT_FOUND, "NOT_FOUND", "runner_id: it is not served here");
    }
    if (request.getContext().getRunId().isEmpty()) {
      return Refusal.of(
          Code.INVALID_ARGUMENT, "INVALID_ARGUMENT", "context.run_id: must not be empty");
    }
    if (active.size() >= MAX_CONCURRENT_RUNS) {
      return Refusal.of(
          Code.RESOURCE_EXHAUSTED,
          "OVERLOADED",
          MAX_CONCURRENT_RUNS + " runs are under way, as many as this process takes");
    }
    return null;
  }

  private static Thread daemon(Runnable work) {
    Thread thread = new Thread(work);
    thread.setDaemon(true);
    return thread;
  }
}
