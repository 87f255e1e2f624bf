package dev.runmesh.examples;

import static java.nio.charset.StandardCharsets.UTF_8;
import static java.util.concurrent.TimeUnit.NANOSECONDS;

import com.google.gson.Gson;
import com.google.gson.GsonBuilder;
import com.google.gson.JsonElement;
import com.google.gson.JsonParseException;
import com.google.gson.Strictness;
import com.google.protobuf.ByteString;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HexFormat;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import runmesh.v1.HostAPIServiceGrpc;
import runmesh.v1.HostApi.ArtifactHeader;
import runmesh.v1.HostApi.CallToolRequest;
import runmesh.v1.HostApi.CallToolResponse;
import runmesh.v1.HostApi.GetStateRequest;
import runmesh.v1.HostApi.PageHistoryRequest;
import runmesh.v1.HostApi.PageHistoryResponse;
import runmesh.v1.HostApi.SetStateRequest;
import runmesh.v1.HostApi.StateEntry;
import runmesh.v1.HostApi.TranscriptItem;
import runmesh.v1.HostApi.TranscriptKind;
import runmesh.v1.Result.ArtifactCreated;
import runmesh.v1.Result.RunResult;
import runmesh.v1.Result.StateScope;
import runmesh.v1.Result.ToolCallCompleted;
import runmesh.v1.Result.ToolCallStarted;
import runmesh.v1.Types.ArtifactRef;
import runmesh.v1.Types.ContentPart;

/** Does what the first word of a message asks for, each with a call of the run's host. */
final class Desk implements Runner {
  private static final String USAGE =
      "Ask me to: count, recall, file NAME, tool NAME JSON, or wait SECONDS.";

  /** How many messages {@code recall} recalls. */
  private static final int RECALLED = 5;

  private static final Gson GSON = new GsonBuilder().setStrictness(Strictness.STRICT).create();
  private static final String CALL_ID = "desk-1";
  private static final int ALL = Integer.MAX_VALUE;
  private static final int PAGE = 100;
  private static final double LONGEST_WAIT_SECONDS = 1e6;

  @Override
  public String run(Run run) throws Exception {
    String[] words = cut(run.text());
    String rest = words[1];
    try {
      switch (rest.isEmpty() ? words[0] : words[0] + " ...") {
        case "count", "count ..." -> count(run);
        case "recall", "recall ..." -> run.reply(transcript(run, RECALLED));
        case "file ..." -> file(run, rest);
        case "tool ..." -> tool(run, rest);
        case "wait ..." -> await(run, rest);
        default -> run.reply(USAGE);
      }
    } catch (HostException refused) {
      throw new RunFailure(
          "desk.refused",
          "the host refused: " + refused.getMessage(),
          refused.isRetryable(),
          Map.of("method", refused.method(), "reason", refused.reason()));
    }
    return "stop";
  }

  /** Adds one to a number in the conversation's state, again where another run was faster. */
  private static void count(Run run) throws HostException, InterruptedException {
    while (true) {
      StateEntry entry = read(run, "count");
      long number = entry.getVersion() == 0 ? 1 : Long.parseLong(entry.getValueJson()) + 1;
      SetStateRequest request =
          SetStateRequest.newBuilder()
              .setScope(StateScope.STATE_SCOPE_CONVERSATION)
              .setKey("count")
              .setValueJson(Long.toString(number))
              .setExpectedVersion(entry.getVersion())
              .build();
      try {
        run.host().call(HostAPIServiceGrpc.getSetStateMethod(), request);
      } catch (HostException refused) {
        if (refused.reason().equals("CONFLICT")) {
          continue;
        }
        throw refused;
      }
      run.reply("message " + number + " of this conversation");
      return;
    }
  }

  /** Reads state of the conversation; version 0 is that of no value. */
  private static StateEntry read(Run run, String key) throws HostException, InterruptedException {
    GetStateRequest request =
        GetStateRequest.newBuilder()
            .setScope(StateScope.STATE_SCOPE_CONVERSATION)
            .setKey(key)
            .build();
    try {
      return run.host().call(HostAPIServiceGrpc.getGetStateMethod(), request).getEntry();
    } catch (HostException refused) {
      if (refused.reason().equals("NOT_FOUND")) {
        return StateEntry.getDefaultInstance();
      }
      throw refused;
    }
  }

  /** Stores the conversation so far as an artifact. */
  private static void file(Run run, String name) throws HostException, InterruptedException {
    byte[] content = transcript(run, ALL).getBytes(UTF_8);
    byte[] digest = sha256(content);
    ArtifactHeader header =
        ArtifactHeader.newBuilder()
            .setType("file")
            .setMimeType("text/plain; charset=utf-8")
            .setName(name)
            .setSizeBytes(content.length)
            .setSha256(ByteString.copyFrom(digest))
            .build();
    ArtifactRef ref = run.host().upload(header, ByteString.copyFrom(content));
    run.send(RunResult.newBuilder().setArtifactCreated(ArtifactCreated.newBuilder().setRef(ref)));
    String hex = HexFormat.of().formatHex(digest);
    run.reply("%s, %d bytes, sha256 %s".formatted(name, content.length, hex));
  }

  /** Writes the last messages before this one, oldest first, a line each. */
  private static String transcript(Run run, int most) throws HostException, InterruptedException {
    List<String> lines = new ArrayList<>();
    String page = "";
    do {
      PageHistoryRequest request =
          PageHistoryRequest.newBuilder()
              .setPageSize(Math.min(most, PAGE))
              .setPageToken(page)
              .build();
      PageHistoryResponse answer =
          run.host().call(HostAPIServiceGrpc.getPageHistoryMethod(), request);
      answer.getItemsList().stream()
          .filter(item -> item.getKind() == TranscriptKind.TRANSCRIPT_KIND_MESSAGE)
          .limit(most - lines.size())
          .forEach(item -> lines.add(line(item)));
      page = answer.getNextPageToken();
    } while (lines.size() < most && !page.isEmpty());
    Collections.reverse(lines);
    return lines.isEmpty() ? "nothing yet" : String.join("\n", lines);
  }

  private static String line(TranscriptItem item) {
    String role = item.getRole().name().replace("CHAT_ROLE_", "").toLowerCase(Locale.ROOT);
    return role + ": " + item.getText();
  }

  /** Calls a tool with a text of JSON, as it is. */
  private static void tool(Run run, String request) throws HostException, InterruptedException {
    String[] words = cut(request);
    String name = words[0];
    String parameters = words[1].isEmpty() ? "{}" : words[1];
    ToolCallStarted.Builder started =
        ToolCallStarted.newBuilder().setCallId(CALL_ID).setToolName(name);
    if (isJson(parameters)) {
      started.setParametersJson(parameters);
    } else {
      started.setPreview(parameters); // the host says what is wrong with it
    }
    run.send(RunResult.newBuilder().setToolCallStarted(started));
    CallToolRequest call =
        CallToolRequest.newBuilder()
            .setToolName(name)
            .setParametersJson(parameters)
            .setCallId(CALL_ID)
            .build();
    CallToolResponse answer = run.host().call(HostAPIServiceGrpc.getCallToolMethod(), call);
    String text = textOf(answer);
    ToolCallCompleted.Builder completed =
        ToolCallCompleted.newBuilder().setCallId(CALL_ID).setToolName(name);
    if (answer.getIsError()) {
      completed.setErrorCode("failed").setErrorMessage(text);
    } else {
      completed.setPreview(text);
    }
    run.send(RunResult.newBuilder().setToolCallCompleted(completed));
    run.reply(answer.getIsError() ? name + " failed: " + text : text);
  }

  private static boolean isJson(String text) {
    try {
      GSON.fromJson(text, JsonElement.class);
      return true;
    } catch (JsonParseException error) {
      return false;
    }
  }

  private static String textOf(CallToolResponse answer) {
    String parts =
        answer.getPartsList().stream()
            .map(ContentPart::getText)
            .filter(text -> !text.isEmpty())
            .collect(Collectors.joining("\n"));
    return Stream.of(parts, answer.getResultJson(), answer.getPreview())
        .filter(text -> !text.isEmpty())
        .findFirst()
        .orElse("(no text)");
  }

  /** Says at once that it waits, and after a time that it has. */
  private static void await(Run run, String text) throws InterruptedException {
    double seconds;
    try {
      seconds = Double.parseDouble(text);
    } catch (NumberFormatException error) {
      seconds = Double.NaN;
    }
    if (!(seconds >= 0 && seconds < LONGEST_WAIT_SECONDS)) {
      run.reply(USAGE);
      return;
    }
    run.delta("waiting");
    NANOSECONDS.sleep((long) (seconds * 1e9));
    run.reply("waited " + text + " s");
  }

  /** Takes the first word off a text: the word, and what is left. */
  private static String[] cut(String text) {
    String[] words = text.strip().split("\\s+", 2);
    return new String[] {words[0], words.length > 1 ? words[1] : ""};
  }

  private static byte[] sha256(byte[] content) {
    try {
      return MessageDigest.getInstance("SHA-256").digest(content);
    } catch (NoSuchAlgorithmException error) {
      throw new AssertionError("every Java has SHA-256", error);
    }
  }
}
