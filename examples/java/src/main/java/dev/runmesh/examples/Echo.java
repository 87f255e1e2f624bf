package dev.runmesh.examples;

import static java.nio.charset.StandardCharsets.UTF_8;
import static java.util.concurrent.TimeUnit.NANOSECONDS;

import java.util.Collections;
import java.util.Map;
import java.util.regex.MatchResult;
import java.util.regex.Pattern;
import java.util.stream.Stream;

/** Streams back what it is told. */
final class Echo implements Runner {
  /** Larger messages are left to the host, which completes them from the pieces. */
  private static final int MESSAGE_BYTES = 1_000_000;

  /** A word and the space behind it; what is very long in several pieces. */
  private static final Pattern PIECE =
      Pattern.compile("\\S{1,4096}+\\s{0,4096}+|\\s{1,4096}+", Pattern.UNICODE_CHARACTER_CLASS);

  /** The configuration, with what holds where it says nothing. */
  static final class Config {
    double delaySeconds;
    double intervalSeconds;
    int repeat;
    int size = 6;
    boolean message = true;
    String failure = "none";
  }

  @Override
  public String run(Run run) throws Exception {
    Config config = run.config(Config.class);
    sleep(config.delaySeconds);
    if (config.failure.equals("error")) {
      run.delta("Before the fault. ");
      throw new RunFailure("echo.asked", "the configuration asks for a failure", true, Map.of());
    }
    String answer = heard(run);
    String piece = "x".repeat(config.size);
    long bytes =
        config.repeat > 0 ? (long) config.repeat * config.size : answer.getBytes(UTF_8).length;
    Stream<String> pieces =
        config.repeat > 0 ? Collections.nCopies(config.repeat, piece).stream() : pieces(answer);
    for (String each : (Iterable<String>) pieces::iterator) {
      run.delta(each);
      sleep(config.intervalSeconds);
    }
    if (bytes == 0) {
      return "silent"; // nothing was said, and nothing is what an echo has to say
    }
    if (config.message && bytes <= MESSAGE_BYTES) {
      run.reply(config.repeat > 0 ? piece.repeat(config.repeat) : answer);
    }
    return "stop";
  }

  /** What was said, or for events without text what happened. */
  private static String heard(Run run) {
    if (run.context().getInput().hasText()) {
      return run.text();
    }
    return "Event " + run.context().getEvent().getType() + ", without text.";
  }

  /** Cuts a text; joined, the pieces are the text again. */
  static Stream<String> pieces(String text) {
    return PIECE.matcher(text).results().map(MatchResult::group);
  }

  private static void sleep(double seconds) throws InterruptedException {
    NANOSECONDS.sleep((long) (seconds * 1e9));
  }
}
