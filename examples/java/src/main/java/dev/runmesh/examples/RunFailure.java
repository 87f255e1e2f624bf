package dev.runmesh.examples;

import java.util.Map;
import runmesh.v1.Result.RunFailed;
import runmesh.v1.Result.RunResult;

/** Ends a run as failed. */
final class RunFailure extends Exception {
  private static final long serialVersionUID = 1L;

  private final transient RunFailed failed;

  RunFailure(String code, String message) {
    this(code, message, false, Map.of());
  }

  RunFailure(String code, String message, boolean retryable, Map<String, String> details) {
    super(message);
    failed =
        RunFailed.newBuilder()
            .setCode(code)
            .setMessage(message)
            .setRetryable(retryable)
            .putAllDetails(details)
            .build();
  }

  RunResult.Builder result() {
    return RunResult.newBuilder().setRunFailed(failed);
  }
}
