package dev.runmesh.examples;

import com.google.gson.FieldNamingPolicy;
import com.google.gson.Gson;
import com.google.gson.GsonBuilder;
import io.grpc.Context;
import io.grpc.stub.ServerCallStreamObserver;
import java.lang.System.Logger.Level;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeoutException;
import runmesh.v1.Context.RunContext;
import runmesh.v1.Result.MessageCompleted;
import runmesh.v1.Result.MessageDelta;
import runmesh.v1.Result.RunCompleted;
import runmesh.v1.Result.RunResult;
import runmesh.v1.Run.RunResponse;
import runmesh.v1.Types.ChatMessage;
import runmesh.v1.Types.ChatRole;
import runmesh.v1.Types.ContentPart;

/** One run under way: what it was handed, where its results go, and how it is stopped. */
final class Run {
  private static final System.Logger LOG = System.getLogger(Run.class.getName());
  private static final Gson GSON =
      new GsonBuilder()
          .setFieldNamingPolicy(FieldNamingPolicy.LOWER_CASE_WITH_UNDERSCORES)
          .create();

  /**
   * So much waits for a reader that is slow before the run itself waits: well below a frame's 3
   * MiB.
   */
  private static final int WAITING_BYTES = 1 << 16;

  private final RunContext context;
  private final Host host;
  private final Context.CancellableContext scope;
  private final ServerCallStreamObserver<RunResponse> stream;
  private final CompletableFuture<Void> ended = new CompletableFuture<>();
  private final RunResponse.Builder waiting = RunResponse.newBuilder();
  private int waitingBytes;
  private long sequence;
  private Thread thread; // null before its code has begun and when that has ended

  /**
   * Takes a run.
   *
   * @param scope ends when the run has to
   * @param stream where its results go
   */
  Run(
      RunContext context,
      Host host,
      Context.CancellableContext scope,
      ServerCallStreamObserver<RunResponse> stream) {
    this.context = context;
    this.host = host;
    this.scope = scope;
    this.stream = stream;
    stream.setOnReadyHandler(this::ready);
    // The scope tells that the caller has left. Without a handler, what is sent to him would throw.
    stream.setOnCancelHandler(() -> {});
    scope.addListener(cancelled -> interrupt(), Runnable::run);
  }

  String id() {
    return context.getRunId();
  }

  RunContext context() {
    return context;
  }

  /** Calls to the host that the run came from. */
  Host host() {
    return host;
  }

  /** What was said; empty where nothing was. */
  String text() {
    return context.getInput().getText();
  }

  /** The agent's configuration, in an object whose fields are named as in the manifest. */
  <T> T config(Class<T> type) {
    String json = context.getConfigJson();
    return GSON.fromJson(json.isEmpty() ? "{}" : json, type);
  }

  /** Sends a piece of the message in progress. */
  void delta(String text) throws InterruptedException {
    send(RunResult.newBuilder().setMessageDelta(MessageDelta.newBuilder().setText(text)));
  }

  /** Sends a whole message, in place of its pieces where there were any. */
  void reply(String text) throws InterruptedException {
    ChatMessage.Builder message =
        ChatMessage.newBuilder()
            .setRole(ChatRole.CHAT_ROLE_ASSISTANT)
            .addParts(ContentPart.newBuilder().setText(text));
    send(
        RunResult.newBuilder()
            .setMessageCompleted(MessageCompleted.newBuilder().setMessage(message)));
  }

  /**
   * Sends a result; waits while the reader is slow. To be called by the run's own thread.
   *
   * @throws InterruptedException the run has to end
   */
  synchronized void send(RunResult.Builder result) throws InterruptedException {
    if (Thread.interrupted()) {
      throw new InterruptedException();
    }
    put(result);
    while (waitingBytes > WAITING_BYTES) {
      wait();
    }
  }

  /** Runs the code to its end and says how it ended. */
  void execute(Runner runner) {
    begin();
    end(outcomeOf(runner));
  }

  /** Stops the run; its stream says why. */
  void stop(RunFailure why) {
    scope.cancel(why);
  }

  /** Is complete when the run's code has ended and nothing more of it is sent. */
  CompletableFuture<Void> ended() {
    return ended;
  }

  private RunResult.Builder outcomeOf(Runner runner) {
    try {
      String reason = runner.run(this);
      return RunResult.newBuilder()
          .setRunCompleted(RunCompleted.newBuilder().setFinishReason(reason));
    } catch (RunFailure failure) {
      return failure.result();
    } catch (Throwable error) { // whatever it is, the run ends as a run must, and the others go on
      if (scope.isCancelled()) {
        return reasonOf(scope.cancellationCause()).result();
      }
      LOG.log(Level.ERROR, "run " + id() + " failed", error);
      String name = error.getClass().getSimpleName();
      return new RunFailure("runner.error", name + ": " + error.getMessage()).result();
    }
  }

  private static RunFailure reasonOf(Throwable cancellation) {
    if (cancellation instanceof RunFailure why) {
      return why;
    }
    if (cancellation instanceof TimeoutException) {
      return new RunFailure("runner.timeout", "the run took longer than it may");
    }
    return new RunFailure("cancelled", "the caller has left");
  }

  /** Adds a result to those that wait; they leave together as soon as the stream takes a frame. */
  private void put(RunResult.Builder result) {
    RunResult numbered = result.setRunId(id()).setSequence(++sequence).build();
    waiting.addResults(numbered);
    waitingBytes += numbered.getSerializedSize();
    if (stream.isReady()) {
      flush();
    }
  }

  private void flush() {
    if (waitingBytes > 0) {
      stream.onNext(waiting.build());
      waiting.clear();
      waitingBytes = 0;
    }
  }

  private synchronized void ready() {
    flush();
    notifyAll();
  }

  private synchronized void begin() {
    thread = Thread.currentThread();
    if (scope.isCancelled()) {
      thread.interrupt();
    }
  }

  private synchronized void end(RunResult.Builder outcome) {
    thread = null;
    // An interrupt that nobody noticed must not reach the next run on this thread.
    Thread.interrupted();
    put(outcome);
    flush();
    stream.onCompleted();
  }

  private synchronized void interrupt() {
    if (thread != null) {
      thread.interrupt();
    }
  }
}
