package dev.runmesh.examples;

import io.grpc.stub.StreamObserver;
import java.util.UUID;
import runmesh.v1.Discovery.HandshakeRequest;
import runmesh.v1.Discovery.HandshakeResponse;
import runmesh.v1.Discovery.ListRunnersRequest;
import runmesh.v1.Discovery.ListRunnersResponse;
import runmesh.v1.DiscoveryServiceGrpc;

/** Says who is there. */
final class DiscoveryService extends DiscoveryServiceGrpc.DiscoveryServiceImplBase {
  private final Plugin plugin;
  private final String instanceId = UUID.randomUUID().toString();

  DiscoveryService(Plugin plugin) {
    this.plugin = plugin;
  }

  /** Answers any host the same; the settings that it hands over are of no use here. */
  @Override
  public void handshake(HandshakeRequest request, StreamObserver<HandshakeResponse> observer) {
    boolean isCommon = request.getProtocolVersionsList().contains(Plugin.PROTOCOL_VERSION);
    observer.onNext(
        HandshakeResponse.newBuilder()
            .setProtocolVersion(isCommon ? Plugin.PROTOCOL_VERSION : "")
            .setPluginId(plugin.id())
            .setPluginVersion(plugin.version())
            .setSdkLanguage("java")
            .setMaxConcurrentRuns(RunService.MAX_CONCURRENT_RUNS)
            .setInstanceId(instanceId)
            .build());
    observer.onCompleted();
  }

  @Override
  public void listRunners(
      ListRunnersRequest request, StreamObserver<ListRunnersResponse> observer) {
    observer.onNext(ListRunnersResponse.newBuilder().addAllRunners(plugin.runners()).build());
    observer.onCompleted();
  }
}
