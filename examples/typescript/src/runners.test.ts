import assert from "node:assert/strict";
import { test } from "node:test";

import { ask } from "@runmesh/sdk/testing";

import { desk } from "./desk.js";
import { echo, pieces } from "./echo.js";

test("echo says back what it is told, piece by piece", async () => {
  const text = "你好 👩‍💻, and  two spaces\n";
  const outcome = await ask(echo, { text });
  assert.equal(outcome.text, text);
  assert.deepEqual([...pieces(text)], ["你好 ", "👩‍💻, ", "and  ", "two ", "spaces\n"]);
});

test("echo cuts no character in two", () => {
  const text = `a${"👍".repeat(5_000)}`;
  assert.equal([...pieces(text)].join(""), text);
  for (const piece of pieces(text)) assert.ok(piece.isWellFormed() && piece.length <= 4096);
});

test("echo has nothing to say where nothing was said", async () => {
  const { results } = await ask(echo, { text: "" });
  assert.deepEqual(
    results.map(({ payload }) => payload.case === "runCompleted" && payload.value.finishReason),
    ["silent"],
  );
});

test("echo repeats and fails as it is configured to", async () => {
  const repeated = await ask(echo, { text: "x", config: { repeat: 3, size: 2, message: false } });
  assert.deepEqual([repeated.text, repeated.results.length], ["xxxxxx", 4]);
  const failed = await ask(echo, { text: "x", config: { failure: "error" } });
  assert.deepEqual([failed.failure?.code, failed.failure?.retryable], ["echo.asked", true]);
});

test("desk waits as long as it is asked to", async () => {
  const { text, results } = await ask(desk, { text: "wait 0.05" });
  assert.equal(text, "waited 0.05 s");
  assert.equal(results[0]?.payload.case, "messageDelta");
  for (const wrong of ["wait", "wait long", "wait -1", "nonsense", ""]) {
    assert.match((await ask(desk, { text: wrong })).text, /Ask me to: count/);
  }
});

test("desk says what the host refuses", async () => {
  const { failure } = await ask(desk, { text: "count" });
  assert.equal(failure?.code, "desk.refused");
  assert.ok(failure.retryable);
  assert.deepEqual(failure.details, { method: "GetState", reason: "UNAVAILABLE" });
});
