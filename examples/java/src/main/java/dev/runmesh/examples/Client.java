package dev.runmesh.examples;

import io.grpc.ManagedChannel;
import io.grpc.Metadata;
import io.grpc.stub.MetadataUtils;
import java.util.Optional;
import runmesh.v1.Event.EventEnvelope;
import runmesh.v1.Event.EventInput;
import runmesh.v1.Gateway.DispatchRequest;
import runmesh.v1.GatewayServiceGrpc;
import runmesh.v1.GatewayServiceGrpc.GatewayServiceBlockingStub;

/** Dispatches a message to an agent, and prints what its run says as it comes. */
public final class Client {
  private Client() {}

  /** Takes the address of a host, an agent and a text; the key is in {@code RUNMESH_API_KEY}. */
  public static void main(String[] arguments) {
    if (arguments.length != 3) {
      System.err.println("usage: client ADDRESS AGENT TEXT");
      System.exit(2);
    }
    String key = Optional.ofNullable(System.getenv("RUNMESH_API_KEY")).orElse("");
    Metadata headers = new Metadata();
    headers.put(
        Metadata.Key.of("authorization", Metadata.ASCII_STRING_MARSHALLER), "Bearer " + key);
    ManagedChannel channel = Address.parse(arguments[0]).connect();
    try {
      ask(
          GatewayServiceGrpc.newBlockingStub(channel)
              .withInterceptors(MetadataUtils.newAttachHeadersInterceptor(headers)),
          arguments[1],
          arguments[2]);
    } finally {
      channel.shutdownNow();
    }
  }

  private static void ask(GatewayServiceBlockingStub gateway, String agent, String text) {
    var input = EventInput.newBuilder().setText(text);
    var event = EventEnvelope.newBuilder().setType("message.received").setInput(input);
    var request = DispatchRequest.newBuilder().setEvent(event).setAgentId(agent).build();
    boolean streamed = false;
    var responses = gateway.dispatch(request);
    while (responses.hasNext()) {
      var response = responses.next();
      for (var result : response.getResults().getResultsList()) {
        streamed |= result.hasMessageDelta();
        System.out.print(result.getMessageDelta().getText());
        if (!streamed) {
          result
              .getMessageCompleted()
              .getMessage()
              .getPartsList()
              .forEach(part -> System.out.print(part.getText()));
        }
      }
      if (response.hasEnded()) {
        var run = response.getEnded();
        System.out.printf("%n%s %s%n", run.getRunId(), run.getStatus());
      }
    }
  }
}
