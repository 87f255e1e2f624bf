package dev.runmesh.examples;

import static java.util.concurrent.TimeUnit.SECONDS;

import io.grpc.ManagedChannel;
import io.grpc.netty.shaded.io.grpc.netty.NettyChannelBuilder;
import io.grpc.netty.shaded.io.grpc.netty.NettyServerBuilder;
import io.grpc.netty.shaded.io.netty.channel.EventLoopGroup;
import io.grpc.netty.shaded.io.netty.channel.MultiThreadIoEventLoopGroup;
import io.grpc.netty.shaded.io.netty.channel.nio.NioIoHandler;
import io.grpc.netty.shaded.io.netty.channel.socket.nio.NioDomainSocketChannel;
import io.grpc.netty.shaded.io.netty.channel.socket.nio.NioServerDomainSocketChannel;
import io.grpc.netty.shaded.io.netty.channel.socket.nio.NioServerSocketChannel;
import io.grpc.netty.shaded.io.netty.channel.socket.nio.NioSocketChannel;
import io.grpc.netty.shaded.io.netty.util.concurrent.DefaultThreadFactory;
import java.net.InetSocketAddress;
import java.net.SocketAddress;
import java.net.URI;
import java.net.UnixDomainSocketAddress;
import java.nio.file.Path;
import java.util.List;
import java.util.logging.Level;
import java.util.logging.Logger;

/**
 * Where a runner listens, or a host does: {@code unix:/path} or {@code host:port}.
 *
 * <p>Java has sockets of files by itself since version 16, so that Netty needs no native library.
 */
record Address(SocketAddress socket) {
  private static final EventLoopGroup LOOPS =
      new MultiThreadIoEventLoopGroup(
          2, new DefaultThreadFactory("grpc", true), NioIoHandler.newFactory());
  // Kept, since a logger that nobody holds forgets its level.
  private static final Logger NETTY = Logger.getLogger("io.grpc.netty.shaded.io.netty.bootstrap");
  private static final List<String> SCHEMES =
      List.of("dns:///", "dns:", "passthrough:///", "ipv4:", "ipv6:");
  // Larger than anything in the contract, so that its own limits answer first.
  private static final int MESSAGE_BYTES = 16 << 20;

  static {
    // It warns of each connection of a socket of files that TCP's keep-alive is not for it.
    NETTY.setLevel(Level.SEVERE);
  }

  /**
   * Reads an address.
   *
   * @throws IllegalArgumentException it is none, or one that others can listen in on: this example
   *     has no TLS, and tokens do not go without it
   */
  static Address parse(String text) {
    if (text.startsWith("unix:")) {
      String path = text.substring("unix:".length()).replaceFirst("^//", "");
      return new Address(UnixDomainSocketAddress.of(Path.of(path)));
    }
    String authority = text;
    for (String scheme : SCHEMES) {
      if (text.startsWith(scheme)) {
        authority = text.substring(scheme.length());
        break;
      }
    }
    URI uri = URI.create("grpc://" + authority);
    if (uri.getHost() == null || uri.getPort() < 0) {
      throw new IllegalArgumentException("\"" + text + "\" is neither host:port nor unix:/path");
    }
    InetSocketAddress socket = new InetSocketAddress(uri.getHost(), uri.getPort());
    if (socket.isUnresolved() || !socket.getAddress().isLoopbackAddress()) {
      throw new IllegalArgumentException("\"" + text + "\" is not on this machine alone");
    }
    return new Address(socket);
  }

  /** The file of the socket; null where it has none. */
  Path file() {
    return socket instanceof UnixDomainSocketAddress unix ? unix.getPath() : null;
  }

  /** Connects, when the first call is made. */
  ManagedChannel connect() {
    NettyChannelBuilder builder =
        NettyChannelBuilder.forAddress(socket)
            .eventLoopGroup(LOOPS)
            .usePlaintext()
            .maxInboundMessageSize(MESSAGE_BYTES);
    if (file() == null) {
      return builder.channelType(NioSocketChannel.class, InetSocketAddress.class).build();
    }
    return builder
        .channelType(NioDomainSocketChannel.class, UnixDomainSocketAddress.class)
        // Otherwise the path would be the authority, which servers refuse.
        .overrideAuthority("localhost")
        .build();
  }

  /** Begins to build a server that listens here. */
  NettyServerBuilder listen() {
    return NettyServerBuilder.forAddress(socket)
        .channelType(
            file() == null ? NioServerSocketChannel.class : NioServerDomainSocketChannel.class)
        .bossEventLoopGroup(LOOPS)
        .workerEventLoopGroup(LOOPS)
        .maxInboundMessageSize(MESSAGE_BYTES)
        // A host may ping a quiet stream: a model can think for minutes.
        .permitKeepAliveTime(1, SECONDS)
        .permitKeepAliveWithoutCalls(true);
  }
}
