package dev.runmesh.examples;

import static java.util.concurrent.TimeUnit.MILLISECONDS;

import io.grpc.Server;
import io.grpc.health.v1.HealthCheckResponse.ServingStatus;
import io.grpc.protobuf.services.HealthStatusManager;
import io.grpc.protobuf.services.ProtoReflectionServiceV1;
import java.io.IOException;
import java.net.ConnectException;
import java.nio.channels.SocketChannel;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.attribute.PosixFilePermissions;
import java.time.Duration;
import java.util.Map;
import java.util.stream.Collectors;
import runmesh.v1.DiscoveryServiceGrpc;
import runmesh.v1.Manifest.RunnerManifest;
import runmesh.v1.RunServiceGrpc;

/** The process's server: discovery, runs, health and reflection. */
final class PluginServer {
  // What cancelled runs get to end, and after that the last frames to leave.
  private static final Duration CLEAN_UP = Duration.ofMillis(400);

  private final HealthStatusManager health = new HealthStatusManager();
  private final RunService runs;
  private final Address address;
  private final Server server;

  /**
   * Makes a server.
   *
   * @param runners the code of each of the plugin's runners, by name
   */
  PluginServer(Plugin plugin, Map<String, Runner> runners, Address address) {
    this.address = address;
    runs =
        new RunService(
            plugin.runners().stream()
                .collect(
                    Collectors.toMap(
                        RunnerManifest::getId, manifest -> runners.get(manifest.getName()))));
    server =
        address
            .listen()
            .addService(new DiscoveryService(plugin))
            .addService(runs)
            .addService(health.getHealthService())
            .addService(ProtoReflectionServiceV1.newInstance())
            .intercept(new Trace())
            .build();
    health.setStatus(DiscoveryServiceGrpc.SERVICE_NAME, ServingStatus.SERVING);
    health.setStatus(RunServiceGrpc.SERVICE_NAME, ServingStatus.SERVING);
  }

  /** Starts to listen. */
  void start() throws IOException {
    Path file = address.file();
    if (file != null) {
      removeAbandoned(file);
    }
    server.start();
    if (file != null) {
      Files.setPosixFilePermissions(file, PosixFilePermissions.fromString("rw-------"));
    }
  }

  /** The port that it listens on; -1 for a socket that is a file. */
  int port() {
    return server.getPort();
  }

  /** Waits until {@link #stop} has come to its end. */
  void awaitEnd() throws InterruptedException {
    server.awaitTermination();
  }

  /** Takes no more runs, gives those under way their grace, and ends. */
  void stop(Duration grace) throws InterruptedException {
    health.enterTerminalState();
    runs.drain();
    if (!runs.awaitIdle(grace)) {
      runs.stopAll();
      runs.awaitIdle(CLEAN_UP);
    }
    server.shutdown();
    if (!server.awaitTermination(CLEAN_UP.toMillis(), MILLISECONDS)) {
      server.shutdownNow();
    }
  }

  /** Removes what a process that was killed has left; one that lives answers. */
  private void removeAbandoned(Path file) throws IOException {
    if (!Files.exists(file)) {
      return;
    }
    try {
      SocketChannel.open(address.socket()).close();
      throw new IOException(file + " is in use");
    } catch (ConnectException nobodyListens) {
      Files.delete(file);
    }
  }
}
