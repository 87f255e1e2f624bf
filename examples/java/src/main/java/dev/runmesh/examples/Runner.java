package dev.runmesh.examples;

/** What answers an event. */
@FunctionalInterface
interface Runner {
  /**
   * Answers one event: sends results and returns when everything is said.
   *
   * <p>The thread is interrupted when the run is cancelled, interrupted or out of time; whatever
   * the code waits for has to end then.
   *
   * @return why it ended, as in {@code RunCompleted.finish_reason}, such as {@code stop}
   * @throws RunFailure to end the run as failed with a code of its own
   * @throws Exception to end it as {@code runner.error}
   */
  String run(Run run) throws Exception;
}
