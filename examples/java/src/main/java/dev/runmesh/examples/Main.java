package dev.runmesh.examples;

import java.io.IOException;
import java.time.Duration;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.atomic.AtomicReference;

/** Serves the plugin until it is told to end, or the host that started it is gone. */
public final class Main {
  private static final Map<String, Runner> RUNNERS = Map.of("echo", new Echo(), "desk", new Desk());
  private static final Duration PARENT_POLL = Duration.ofMillis(500);

  private Main() {}

  /**
   * Listens on the address in {@code RUNMESH_LISTEN}; without one, on any free port of this
   * machine.
   */
  public static void main(String[] arguments) throws IOException, InterruptedException {
    // Before anything else: a host that is gone by then cannot be told from any other.
    Optional<ProcessHandle> parent = ProcessHandle.current().parent();
    String listen = Optional.ofNullable(System.getenv("RUNMESH_LISTEN")).orElse("127.0.0.1:0");
    boolean isSupervised = "1".equals(System.getenv("RUNMESH_SUPERVISED"));
    // A host gives its processes 5 s to end.
    var grace = new AtomicReference<>(Duration.ofSeconds(isSupervised ? 4 : 30));
    PluginServer server;
    try {
      server = new PluginServer(Plugin.read(), RUNNERS, Address.parse(listen));
      server.start();
    } catch (IOException | IllegalArgumentException error) {
      System.err.println("cannot serve: " + error.getMessage());
      System.exit(1);
      return;
    }
    System.err.println("listening on " + (server.port() < 0 ? listen : "port " + server.port()));
    // SIGTERM and SIGINT come as this. The JVM's own exit code would be that of a failure.
    Runtime.getRuntime().addShutdownHook(new Thread(() -> end(server, grace.get())));
    if (isSupervised) {
      awaitGone(parent);
      grace.set(Duration.ZERO); // nobody is left to read what runs say
      System.exit(0);
    }
    server.awaitEnd();
  }

  private static void end(PluginServer server, Duration grace) {
    try {
      server.stop(grace);
    } catch (InterruptedException | RuntimeException error) {
      System.err.println("cannot end in order: " + error);
    }
    Runtime.getRuntime().halt(0);
  }

  private static void awaitGone(Optional<ProcessHandle> parent) throws InterruptedException {
    while (ProcessHandle.current().parent().equals(parent)) {
      Thread.sleep(PARENT_POLL.toMillis());
    }
  }
}
