import com.google.protobuf.Message;
import com.google.protobuf.TypeRegistry;
import com.google.protobuf.util.JsonFormat;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.HexFormat;
import java.util.List;

/** Reads messages of the contract and writes them again, as wire_programs.py says. */
public final class Wire {
  private static final List<String> FILES =
      List.of(
          "Attach", "Context", "Discovery", "Event", "Gateway", "HostApi", "Manifest", "Result",
          "Run", "Types");
  private static final TypeRegistry TYPES =
      TypeRegistry.newBuilder()
          .add(com.google.rpc.ErrorInfo.getDescriptor())
          .add(com.google.rpc.BadRequest.getDescriptor())
          .add(com.google.rpc.RetryInfo.getDescriptor())
          .build();
  private static final JsonFormat.Printer PRINTER =
      JsonFormat.printer().usingTypeRegistry(TYPES).omittingInsignificantWhitespace();
  private static final JsonFormat.Parser PARSER =
      JsonFormat.parser().usingTypeRegistry(TYPES).ignoringUnknownFields();

  public static void main(String[] arguments) throws Exception {
    var in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    var out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
    for (String line = in.readLine(); line != null; line = in.readLine()) {
      String[] words = line.split(" ", 3);
      String answer;
      try {
        answer = again(words[0], words[1], words[2]);
      } catch (Exception failure) {
        answer = "! " + failure.toString().replace('\n', ' ');
      }
      out.print(answer + "\n");
    }
    out.flush();
  }

  private static String again(String name, String form, String content) throws Exception {
    Message.Builder builder = newBuilder(name);
    if (form.equals("json")) {
      PARSER.merge(content, builder);
    } else {
      builder.mergeFrom(HexFormat.of().parseHex(content));
    }
    Message message = builder.build();
    return HexFormat.of().formatHex(message.toByteArray()) + " " + PRINTER.print(message);
  }

  private static Message.Builder newBuilder(String name) throws Exception {
    if (name.equals("google.rpc.Status")) {
      return com.google.rpc.Status.newBuilder();
    }
    String simple = name.substring(name.lastIndexOf('.') + 1);
    for (String file : FILES) {
      try {
        Class<?> found = Class.forName("runmesh.v1." + file + "$" + simple);
        return (Message.Builder) found.getMethod("newBuilder").invoke(null);
      } catch (ClassNotFoundException elsewhere) {
        // It is of another file.
      }
    }
    throw new IllegalArgumentException("there is no " + name);
  }
}
