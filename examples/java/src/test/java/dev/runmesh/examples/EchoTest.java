package dev.runmesh.examples;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.List;
import java.util.stream.Collectors;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

class EchoTest {
  @Test
  void wordsKeepTheSpaceBehindThem() {
    assertEquals(List.of("  ", "one ", "two\n\n", "three"), pieces("  one two\n\nthree"));
  }

  @ParameterizedTest
  @ValueSource(
      strings = {"", " ", "one", "你好 👩‍💻 שלום\r\n", "\u2003wide\u00a0space\u2029", "e\u0301 "})
  void joinedPiecesAreTheText(String text) {
    assertEquals(text, String.join("", pieces(text)));
  }

  @Test
  void longWordsAreCutBetweenCharacters() {
    String text = "👍".repeat(10_000) + " ".repeat(10_000);
    List<String> pieces = pieces(text);
    assertTrue(text.equals(String.join("", pieces)));
    assertTrue(pieces.stream().allMatch(piece -> piece.length() <= 3 * 4096));
    assertTrue(pieces.stream().noneMatch(piece -> Character.isLowSurrogate(piece.charAt(0))));
  }

  private static List<String> pieces(String text) {
    return Echo.pieces(text).collect(Collectors.toList());
  }
}
