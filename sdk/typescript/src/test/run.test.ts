import assert from "node:assert/strict";
import { setTimeout as sleep } from "node:timers/promises";
import { after, test } from "node:test";

import { RunService, type RunResult, StateScope } from "../v1.js";
import {
  Failure,
  HostError,
  type Result,
  type Run,
  type Runner,
  RunStopped,
  completed,
  connect,
  definePlugin,
  delta,
  inlineArtifact,
  log,
  reply,
  setState,
  start,
  toolStarted,
} from "../index.js";
import { ask } from "../testing.js";

const manifest = { name: "one", label: { text: { en_US: "One" } }, capabilities: { streaming: true, interrupt: true } };
const runnerId = "plugin:acme/test/one";

const closing: (() => Promise<void>)[] = [];
after(() => Promise.all(closing.map((close) => close())));

async function serving(runner: Runner, options = {}) {
  const plugin = definePlugin({ author: "acme", name: "test", version: "1" }, [manifest], { one: runner });
  const served = await start(plugin, { listen: "127.0.0.1:0", tls: undefined, ...options });
  closing.push(() => served.close());
  return { ...served, service: connect(RunService, served.address) };
}

async function all(frames: AsyncIterable<{ results: RunResult[] }>): Promise<RunResult[]> {
  const results: RunResult[] = [];
  for await (const frame of frames) results.push(...frame.results);
  return results;
}

function cases(results: readonly RunResult[]): string[] {
  return results.map(({ payload }) => payload.case ?? "");
}

test("results are numbered, timed, and ended with the author's return", async () => {
  const { results, text } = await ask(async function* (run) {
    yield delta("Hello, ");
    yield log(`heard ${run.text}`);
    yield delta("world");
  });
  assert.deepEqual(cases(results), ["messageDelta", "log", "messageDelta", "runCompleted"]);
  assert.deepEqual(
    results.map(({ sequence }) => sequence),
    [1n, 2n, 3n, 4n],
  );
  assert.equal(new Set(results.map(({ runId }) => runId)).size, 1);
  assert.ok(results.every(({ timestamp }) => timestamp && timestamp.seconds > 0n));
  assert.equal(text, "Hello, world");
});

test("an author may end the run, and what follows is not sent", async () => {
  let cleanedUp = false;
  const { results } = await ask(async function* () {
    try {
      yield completed("silent");
      yield delta("too late");
    } finally {
      cleanedUp = true;
    }
  });
  assert.deepEqual(cases(results), ["runCompleted"]);
  assert.ok(cleanedUp);
});

test("a failure ends the run with its code, another error with a code for it", async () => {
  const said = await ask(async function* () {
    yield delta("so far");
    throw new Failure("desk.closed", "come back later", { retryable: true, details: { opens: "9:00" } });
  });
  assert.deepEqual(cases(said.results), ["messageDelta", "runFailed"]);
  const { code, message, retryable, details } = said.failure ?? {};
  assert.deepEqual([code, message, retryable, details], ["desk.closed", "come back later", true, { opens: "9:00" }]);
  const thrown = await ask(() => {
    throw new TypeError("a slip of the pen");
  });
  assert.equal(thrown.failure?.code, "runner.error");
  assert.equal(thrown.failure.message, "a slip of the pen");
  const wordy = await ask(() => {
    throw new Failure("desk.wordy", "x".repeat(1024 * 1024));
  });
  assert.equal(wordy.failure?.code, "runner.error");
  assert.match(wordy.failure.message, /at most 1048576/);
});

test("half a pair of surrogates becomes U+FFFD, and the run goes on", async () => {
  const { results, text } = await ask(async function* () {
    yield delta("a\ud83dz");
    yield setState(StateScope.RUNNER, "k", "\udc00");
    yield reply("whole 👩‍💻 \ud83d");
  });
  assert.deepEqual(cases(results), ["messageDelta", "stateUpdated", "messageCompleted", "runCompleted"]);
  assert.equal(results[0]?.payload.case === "messageDelta" && results[0].payload.value.text, "a\ufffdz");
  assert.equal(text, "whole 👩‍💻 \ufffd");
});

test("a result that is too large ends its own run, an inline artifact of 1 MiB does not", async () => {
  const { failure } = await ask(async function* () {
    yield delta("x".repeat(1024 * 1024));
  });
  assert.match(failure?.message ?? "", /at most 1048576/);
  const { results } = await ask(async function* () {
    for (let index = 0; index < 6; index++)
      yield inlineArtifact("a.bin", "application/octet-stream", new Uint8Array(1024 * 1024));
    yield completed("silent");
  });
  assert.equal(results.length, 7);
});

test("what is yielded at once shares frames, what takes time does not wait for it", async () => {
  const { service, close } = await serving(async function* () {
    for (let index = 0; index < 1000; index++) yield delta("x");
    await sleep(300);
    yield delta("later");
  });
  const frames: number[] = [];
  for await (const { results } of service.run({ runnerId, context: { runId: "r" } })) frames.push(results.length);
  assert.equal(
    frames.reduce((sum, size) => sum + size),
    1002,
  );
  assert.ok(frames.length < 20, `${frames.length} frames`);
  assert.ok((frames.at(-1) ?? 0) <= 2);
  await close();
});

test("a slow reader holds the author back, and only its own", async () => {
  let yielded = 0;
  const { service, close } = await serving(async function* (run) {
    const text = "x".repeat(run.text === "slow" ? 100_000 : 1);
    for (let index = 0; index < 1200; index++) {
      yield delta(text);
      yielded += run.text === "slow" ? 1 : 0;
    }
  });
  const slow = service.run({ runnerId, context: { runId: "slow", input: { text: "slow" } } });
  const first = await slow.next();
  const quick = await all(service.run({ runnerId, context: { runId: "quick" } }));
  assert.equal(quick.length, 1201);
  await sleep(300);
  // The reader's own end takes up to 16 frames ahead.
  assert.ok(yielded < 800, `${yielded} of 1200 were taken`);
  const rest = await all(slow);
  assert.equal((first.value?.results.length ?? 0) + rest.length, 1201);
  await close();
});

test("a cancelled call ends what the author waits for", async () => {
  const reasons: unknown[] = [];
  const { service, close } = await serving(async function* ({ signal }) {
    yield delta("waiting");
    await sleep(60_000, undefined, { signal }).catch((error: Error) => reasons.push(error.cause));
  });
  for await (const { results } of service.run({ runnerId, context: { runId: "r" } })) {
    assert.equal(results.length, 1);
    break;
  }
  await close(5_000);
  assert.equal(reasons.length, 1);
  assert.ok(reasons[0] instanceof RunStopped);
});

test("an author who takes no notice is stopped at a yield", async () => {
  let stopped: unknown;
  const { service, close } = await serving(async function* () {
    try {
      for (;;) {
        yield delta("on and on");
        await sleep(5);
      }
    } catch (error) {
      stopped = error;
      throw error;
    }
  });
  for await (const _ of service.run({ runnerId, context: { runId: "r" } })) break;
  await close(5_000);
  assert.ok(stopped instanceof RunStopped);
});

test("an interrupted run has its last words, and ends before the answer", async () => {
  const { service, close } = await serving(async function* ({ signal }) {
    try {
      yield delta("begun");
      await sleep(60_000, undefined, { signal });
    } catch (error) {
      yield delta(", stopped");
      yield setState(StateScope.CONVERSATION, "stopped", true);
      throw error;
    }
  });
  const frames = service.run({ runnerId, context: { runId: "r" } });
  await frames.next();
  const { wasActive } = await service.interrupt({ runId: "r", reason: "cancelled" });
  assert.ok(wasActive);
  const rest = await all(frames);
  assert.deepEqual(cases(rest), ["messageDelta", "stateUpdated", "runFailed"]);
  assert.equal(rest[2]?.payload.case === "runFailed" && rest[2].payload.value.code, "cancelled");
  assert.equal((await service.interrupt({ runId: "r" })).wasActive, false);
  await close();
});

test("an author who never comes back does not hold up an interrupt", async () => {
  const { service, close } = await serving(async function* () {
    yield delta("begun");
    await new Promise(() => {});
  });
  const frames = service.run({ runnerId, context: { runId: "r" } });
  await frames.next();
  const began = Date.now();
  await service.interrupt({ runId: "r" });
  assert.ok(Date.now() - began < 10_000);
  assert.deepEqual(cases(await all(frames)), ["runFailed"]);
  await close();
});

test("a run ends when its timeout has passed", async () => {
  const { service, close } = await serving(async function* ({ signal }) {
    await sleep(60_000, undefined, { signal });
    yield delta("never");
  });
  const [last] = await all(service.run({ runnerId, context: { runId: "r" }, timeout: { nanos: 200_000_000 } }));
  assert.equal(last?.payload.case === "runFailed" && last.payload.value.code, "runner.timeout");
  await close();
});

test("configuration, settings and state are at hand", async () => {
  const seen = async function* (run: Run): AsyncGenerator<Result> {
    const { greeting = "none" } = run.config<{ greeting: string }>();
    yield reply(
      JSON.stringify([greeting, run.settings(), run.stateAtStart(StateScope.ACTOR, "n"), run.context.configJson]),
    );
  };
  const { text } = await ask(seen, {
    context: { configJson: '{"greeting":"hi","big":9007199254740993}', state: { actorJson: { n: "7" } } as never },
  });
  assert.deepEqual(JSON.parse(text), ["hi", {}, 7, '{"greeting":"hi","big":9007199254740993}']);
});

test("calls that are no runs are refused with a reason", async () => {
  const { service, close } = await serving(
    async function* ({ signal }) {
      yield toolStarted("c", "t", "{}");
      await sleep(60_000, undefined, { signal });
    },
    { maxConcurrentRuns: 1 },
  );
  const reasonOf = (request: object) =>
    all(service.run(request)).then(
      () => "none",
      (error: HostError) => error.reason,
    );
  assert.equal(await reasonOf({ runnerId: "plugin:acme/test/two", context: { runId: "r" } }), "NOT_FOUND");
  assert.equal(await reasonOf({ runnerId }), "INVALID_ARGUMENT");
  assert.equal(await reasonOf({ runnerId, context: { runId: "r", configJson: "[1]" } }), "INVALID_ARGUMENT");
  const one = service.run({ runnerId, context: { runId: "r" } });
  await one.next();
  const refused = await all(service.run({ runnerId, context: { runId: "s" } })).catch((error: unknown) => error);
  assert.ok(refused instanceof HostError);
  assert.deepEqual(
    [refused.reason, refused.retryable, refused.retryAfterMs, refused.metadata["limit"]],
    ["OVERLOADED", true, 1000, "1"],
  );
  await one.return();
  await close();
});

test("a process that drains refuses runs and finishes those under way", async () => {
  let finish = () => {};
  const { service, close } = await serving(async function* () {
    yield delta("begun");
    await new Promise<void>((resolve) => (finish = resolve));
    yield delta(", finished");
  });
  const frames = service.run({ runnerId, context: { runId: "r" } });
  await frames.next();
  const closed = close(10_000);
  const refused = await all(service.run({ runnerId, context: { runId: "s" } })).catch((error: unknown) => error);
  assert.ok(refused instanceof HostError);
  assert.equal(refused.reason, "UNAVAILABLE");
  finish();
  assert.deepEqual(cases(await all(frames)), ["messageDelta", "runCompleted"]);
  await closed;
});

test("what does not end within its grace is told why", async () => {
  const { service, close } = await serving(async function* ({ signal }) {
    yield delta("begun");
    await sleep(60_000, undefined, { signal });
  });
  const frames = service.run({ runnerId, context: { runId: "r" } });
  await frames.next();
  const [rest] = await Promise.all([all(frames), close(100)]);
  const [last] = rest;
  assert.equal(last?.payload.case === "runFailed" && last.payload.value.code, "runner.unavailable");
  assert.ok(last?.payload.case === "runFailed" && last.payload.value.retryable);
});
