package dev.runmesh.examples;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.google.protobuf.Duration;
import io.grpc.ManagedChannel;
import io.grpc.Metadata;
import io.grpc.Status.Code;
import io.grpc.StatusRuntimeException;
import io.grpc.health.v1.HealthCheckRequest;
import io.grpc.health.v1.HealthCheckResponse.ServingStatus;
import io.grpc.health.v1.HealthGrpc;
import io.grpc.stub.MetadataUtils;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;
import runmesh.v1.Context.RunContext;
import runmesh.v1.Event.EventInput;
import runmesh.v1.Result.RunFailed;
import runmesh.v1.Result.RunResult;
import runmesh.v1.Run.HostAccess;
import runmesh.v1.Run.InterruptRequest;
import runmesh.v1.Run.RunRequest;
import runmesh.v1.Run.RunResponse;
import runmesh.v1.RunServiceGrpc;
import runmesh.v1.RunServiceGrpc.RunServiceBlockingStub;

/** The plugin behind a real socket, called as a host does. */
@Timeout(60)
class PluginServerTest {
  private static final java.time.Duration GRACE = java.time.Duration.ofSeconds(20);
  private static final String TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

  @TempDir Path folder;
  private PluginServer server;
  private boolean isStopped;
  private StandInHost host;
  private ManagedChannel channel;
  private RunServiceBlockingStub runs;

  @BeforeEach
  void start() throws Exception {
    Map<String, Runner> runners = Map.of("echo", new Echo(), "desk", new Desk());
    Address address = Address.parse("unix:" + folder.resolve("plugin"));
    server = new PluginServer(Plugin.read(), runners, address);
    server.start();
    host = new StandInHost(Address.parse(hostAddress()));
    channel = address.connect();
    runs = RunServiceGrpc.newBlockingStub(channel);
  }

  @AfterEach
  void stop() throws Exception {
    channel.shutdownNow();
    host.close();
    if (!isStopped) {
      server.stop(java.time.Duration.ZERO);
    }
  }

  @Test
  void resultsAreNumberedAndEndOnce() {
    List<RunResult> results = rest(runs.run(request("echo", "one two").build()));
    assertEquals(List.of(1L, 2L, 3L, 4L), results.stream().map(RunResult::getSequence).toList());
    assertEquals("one two", said(results));
    assertEquals("stop", results.get(3).getRunCompleted().getFinishReason());
  }

  @Test
  void countTriesAgainWhereAnotherRunWasFaster() {
    assertEquals("message 8 of this conversation", said(rest(runs.run(desk("count")))));
    assertEquals(4, host.calls.size());
  }

  @Test
  void callsOfTheHostCarryTokensTraceAndDeadline() {
    Metadata headers = new Metadata();
    headers.put(key("traceparent"), TRACE);
    RunRequest request =
        request("desk", "count").setTimeout(Duration.newBuilder().setSeconds(60)).build();
    rest(runs.withInterceptors(MetadataUtils.newAttachHeadersInterceptor(headers)).run(request));
    assertFalse(host.calls.isEmpty());
    for (Metadata call : host.calls) {
      assertEquals("Bearer run", call.get(key("authorization")));
      assertEquals("instance", call.get(key("runmesh-instance")));
      assertEquals(TRACE, call.get(key("traceparent")));
    }
    assertFalse(host.deadlines.contains(false));
  }

  @Test
  void whatTheHostRefusesEndsTheRun() {
    RunFailed failed = failure(rest(runs.run(desk("recall"))));
    assertEquals("desk.refused", failed.getCode());
    assertEquals(Map.of("method", "PageHistory", "reason", "UNAUTHORIZED"), failed.getDetailsMap());
    assertFalse(failed.getRetryable());
  }

  @Test
  void interruptedRunStopsBeforeTheAnswerComes() {
    Iterator<RunResponse> stream = runs.run(desk("wait 50"));
    assertEquals("waiting", stream.next().getResults(0).getMessageDelta().getText());
    InterruptRequest request = InterruptRequest.newBuilder().setRunId("run-1").build();
    assertTrue(runs.interrupt(request).getWasActive());
    assertFalse(runs.interrupt(request).getWasActive());
    assertEquals("cancelled", failure(rest(stream)).getCode());
  }

  @Test
  void runEndsWhenItsTimeIsOver() {
    RunRequest request =
        request("desk", "wait 50").setTimeout(Duration.newBuilder().setNanos(200_000_000)).build();
    assertEquals("runner.timeout", failure(rest(runs.run(request))).getCode());
  }

  @Test
  void runnerOfAnotherPluginIsNotFound() {
    RunRequest request = request("echo", "hi").setRunnerId("plugin:acme/other/echo").build();
    StatusRuntimeException refused =
        assertThrows(StatusRuntimeException.class, () -> rest(runs.run(request)));
    assertEquals(Code.NOT_FOUND, refused.getStatus().getCode());
  }

  @Test
  void drainingProcessRefusesRunsAndFinishesThoseItHas() throws Exception {
    Iterator<RunResponse> stream = runs.run(desk("wait 2"));
    stream.next();
    isStopped = true;
    CompletableFuture<Void> stopped =
        CompletableFuture.runAsync(
            () -> {
              try {
                server.stop(GRACE);
              } catch (InterruptedException error) {
                throw new AssertionError(error);
              }
            });
    HealthGrpc.HealthBlockingStub health = HealthGrpc.newBlockingStub(channel);
    while (health.check(HealthCheckRequest.getDefaultInstance()).getStatus()
        == ServingStatus.SERVING) {
      Thread.onSpinWait();
    }
    StatusRuntimeException refused =
        assertThrows(StatusRuntimeException.class, () -> rest(runs.run(desk("count"))));
    assertEquals(Code.UNAVAILABLE, refused.getStatus().getCode());
    assertEquals("waited 2 s", said(rest(stream)));
    stopped.get();
  }

  private String hostAddress() {
    return "unix:" + folder.resolve("host");
  }

  private RunRequest desk(String text) {
    return request("desk", text).build();
  }

  private RunRequest.Builder request(String runner, String text) {
    return RunRequest.newBuilder()
        .setRunnerId("plugin:examples/java/" + runner)
        .setContext(
            RunContext.newBuilder()
                .setRunId("run-1")
                .setInput(EventInput.newBuilder().setText(text)))
        .setHostAccess(
            HostAccess.newBuilder()
                .setAddress(hostAddress())
                .setRunToken("run")
                .setInstanceToken("instance"));
  }

  private static List<RunResult> rest(Iterator<RunResponse> stream) {
    List<RunResult> results = new ArrayList<>();
    stream.forEachRemaining(frame -> results.addAll(frame.getResultsList()));
    return results;
  }

  private static String said(List<RunResult> results) {
    return results.stream()
        .filter(RunResult::hasMessageCompleted)
        .map(result -> result.getMessageCompleted().getMessage().getParts(0).getText())
        .reduce("", String::concat);
  }

  private static RunFailed failure(List<RunResult> results) {
    return results.get(results.size() - 1).getRunFailed();
  }

  private static Metadata.Key<String> key(String name) {
    return Metadata.Key.of(name, Metadata.ASCII_STRING_MARSHALLER);
  }
}
