package dev.runmesh.examples;

import io.grpc.Channel;
import io.grpc.ManagedChannel;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;

/** Connections to the hosts that runs came from, one for each address. */
final class Connections {
  private final Map<String, ManagedChannel> channels = new ConcurrentHashMap<>();

  /**
   * Connects to an address, or takes the connection that there is.
   *
   * @throws IllegalArgumentException it is none that can be used
   */
  Channel to(String address) {
    return channels.computeIfAbsent(address, text -> Address.parse(text).connect());
  }
}
