import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { after, test } from "node:test";

import { type MessageInitShape, create } from "@bufbuild/protobuf";
import * as grpc from "@grpc/grpc-js";

import { attachFromEnvironment } from "../attach.js";
import { type Runner, definePlugin, delta, setState, start } from "../index.js";
import { definitionOf } from "../rpc.js";
import {
  type AttachRequest,
  type AttachResponse,
  AttachResponseSchema,
  AttachService,
  GetStateResponseSchema,
  HostAPIService,
  StateScope,
} from "../v1.js";

const manifest = { name: "one", label: { text: { en_US: "One" } }, capabilities: { streaming: true, interrupt: true } };
const runnerId = "plugin:acme/test/one";
const token = "rma_test";

const closing: (() => unknown)[] = [];
after(() => Promise.all(closing.map((close) => close())));

type Down = MessageInitShape<typeof AttachResponseSchema>;

/** One stream, as the host has it. */
class Stream {
  readonly #said: AttachRequest[] = [];
  readonly #ended: Promise<void>;
  #news: () => void = () => {};

  constructor(readonly call: grpc.ServerDuplexStream<AttachRequest, AttachResponse>) {
    call.on("error", () => {});
    call.on("data", (request: AttachRequest) => {
      this.#said.push(request);
      this.#news();
    });
    this.#ended = new Promise((resolve) => {
      call.on("end", resolve);
    });
  }

  say(message: NonNullable<Down["message"]>, metadata: Record<string, string> = {}): void {
    this.call.write(create(AttachResponseSchema, { message, metadata }));
  }

  welcome(initialCredit = 1000): void {
    const host = { hostId: "h", protocolVersions: ["1"], settingsJson: '{"from":"host"}' };
    this.say({ case: "welcome", value: { host, protocolVersion: "1", initialCredit } });
  }

  run(runId: string, text = "", metadata: Record<string, string> = {}): void {
    const context = { runId, input: { text } };
    const hostAccess = { hostId: "h", runToken: "of the run", instanceToken: "of the instance" };
    this.say({ case: "run", value: { runnerId, context, hostAccess } }, metadata);
  }

  /** What is said next. */
  async next(): Promise<AttachRequest["message"]> {
    const late = AbortSignal.timeout(20_000);
    while (!this.#said.length) {
      late.throwIfAborted();
      await Promise.race([new Promise<void>((resolve) => (this.#news = resolve)), sleep(100)]);
    }
    return (this.#said.shift() as AttachRequest).message;
  }

  /** Short names of what is said until a run has ended, or `count` results of it have come. */
  async until(runId: string, count = Infinity): Promise<string[]> {
    const names: string[] = [];
    while (names.length < count) {
      const message = await this.next();
      if (message.case === "results") {
        assert.equal(message.value.runId, runId);
        names.push(...message.value.results.map(({ payload }) => payload.case ?? ""));
      } else {
        names.push(message.case ?? "");
        if (message.case === "runEnded") return names;
      }
    }
    return names;
  }

  /** Nothing more comes for a while. */
  async isQuiet(): Promise<boolean> {
    await sleep(300);
    return this.#said.length === 0;
  }

  /** Waits until the runner has closed its side. */
  ended(): Promise<void> {
    return this.#ended;
  }
}

/** A host that answers nothing by itself. */
async function host(credentials = grpc.ServerCredentials.createInsecure()) {
  const server = new grpc.Server();
  const waiting: ((stream: Stream) => void)[] = [];
  const streams: Stream[] = [];
  let refusal: grpc.ServerErrorResponse | undefined;
  const calls: grpc.Metadata[] = [];
  server.addService(definitionOf(HostAPIService), {
    getState: ({ metadata }: { metadata: grpc.Metadata }, answer: grpc.sendUnaryData<unknown>) => {
      calls.push(metadata);
      answer(null, create(GetStateResponseSchema));
    },
  });
  server.addService(definitionOf(AttachService), {
    attach: (call: grpc.ServerDuplexStream<AttachRequest, AttachResponse>) => {
      if (refusal) return void call.emit("error", refusal);
      assert.deepEqual(call.metadata.get("authorization"), [`Bearer ${token}`]);
      const stream = new Stream(call);
      const wanted = waiting.shift();
      if (wanted) wanted(stream);
      else streams.push(stream);
    },
  });
  const port = await new Promise<number>((resolve, reject) => {
    const bound = (error: Error | null, port: number) => (error ? reject(error) : resolve(port));
    server.bindAsync("127.0.0.1:0", credentials, bound);
  });
  closing.push(() => server.forceShutdown());
  return {
    address: `127.0.0.1:${port}`,
    calls,
    attached: (): Promise<Stream> =>
      new Promise((resolve) => {
        const stream = streams.shift();
        if (stream) resolve(stream);
        else waiting.push(resolve);
      }),
    refuse: (code: grpc.status, details: string) => {
      refusal = Object.assign(new Error(details), { code, details });
    },
  };
}

async function attaching(runner: Runner, initialCredit = 1000, options = {}) {
  const plugin = definePlugin({ author: "acme", name: "test", version: "1" }, [manifest], { one: runner });
  const dialled = await host();
  const attach = { host: dialled.address, token, ...options };
  const serving = await start(plugin, { attach, tls: undefined });
  closing.push(() => serving.close());
  const stream = await dialled.attached();
  const hello = await stream.next();
  stream.welcome(initialCredit);
  return { ...dialled, serving, stream, hello };
}


test("hello says who attaches, and nothing more before the welcome", async () => {
  const { stream, hello, address, serving } = await attaching(async function* () {}, 1000, { development: true });
  assert.ok(hello.case === "hello");
  const { protocolVersions, handshake, runners, development, hostAddress } = hello.value;
  assert.deepEqual([protocolVersions, development, hostAddress], [["1"], true, address]);
  assert.deepEqual([handshake?.pluginId, handshake?.protocolVersion], ["acme/test", ""]);
  assert.deepEqual(
    runners.map(({ id }) => id),
    [runnerId],
  );
  assert.equal(serving.address, address);
  assert.ok(await stream.isQuiet());
});

test("a run is as if it had been called, and its host is the one that was dialled", async () => {
  const { stream, calls } = await attaching(async function* (run) {
    yield delta(run.text);
    await run.host.getState({ scope: StateScope.RUNNER, key: "k" });
    yield delta(JSON.stringify(run.settings()));
  });
  stream.run("r", "hi", { traceparent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01" });
  const results: unknown[] = [];
  let last = await stream.next();
  for (; last.case === "results"; last = await stream.next()) {
    assert.equal(last.value.runId, "r");
    for (const { runId, sequence, payload } of last.value.results) {
      results.push([runId, sequence, payload.case === "messageDelta" ? payload.value.text : payload.case]);
    }
  }
  assert.deepEqual(results, [
    ["r", 1n, "hi"],
    ["r", 2n, '{"from":"host"}'],
    ["r", 3n, "runCompleted"],
  ]);
  assert.ok(last.case === "runEnded");
  assert.deepEqual([last.value.runId, last.value.statusCode], ["r", 0]);
  const sent = ["authorization", "runmesh-instance", "traceparent"].map((key) => calls[0]?.get(key)[0]);
  assert.deepEqual(sent, [
    "Bearer of the run",
    "of the instance",
    "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
  ]);
});

test("a run that cannot be ends with its refusal", async () => {
  const { stream } = await attaching(async function* () {});
  stream.say({ case: "run", value: { runnerId: "plugin:acme/test/two", context: { runId: "r" } } });
  const ended = await stream.next();
  assert.ok(ended.case === "runEnded");
  assert.deepEqual([ended.value.runId, ended.value.statusCode], ["r", grpc.status.NOT_FOUND]);
  assert.match(ended.value.statusMessage, /two/);
});

test("no more is sent than was credited, and a run without credit holds up no other", async () => {
  let yielded = 0;
  const { stream } = await attaching(async function* (run) {
    for (let index = 0; index < (run.text === "long" ? 2000 : 2); index++) {
      yield delta("x");
      yielded += run.text === "long" ? 1 : 0;
    }
  }, 3);
  stream.run("slow", "long");
  assert.equal((await stream.until("slow", 3)).length, 3);
  assert.ok(await stream.isQuiet());
  assert.ok(yielded < 600, `${yielded} of 2000 were taken`);
  stream.run("quick");
  assert.deepEqual(await stream.until("quick"), ["messageDelta", "messageDelta", "runCompleted", "runEnded"]);
  stream.say({ case: "credit", value: { runId: "slow", results: 4 } });
  assert.equal((await stream.until("slow", 4)).length, 4);
  assert.ok(await stream.isQuiet());
  stream.say({ case: "credit", value: { runId: "slow", results: 5000 } });
  const rest = await stream.until("slow");
  assert.deepEqual([rest.length, rest.at(-2), rest.at(-1)], [2001 - 7 + 1, "runCompleted", "runEnded"]);
});

test("nothing is said of a cancelled run, whether it waits for credit or for something else", async () => {
  const stopped: string[] = [];
  const { stream } = await attaching(async function* ({ signal, text }) {
    try {
      for (let index = 0; index < 20; index++) yield delta("x");
      await sleep(60_000, undefined, { signal });
    } catch (error) {
      yield setState(StateScope.RUNNER, "stopped", true);
      throw error;
    } finally {
      stopped.push(text);
    }
  }, 10);
  stream.run("a", "a");
  assert.equal((await stream.until("a", 10)).length, 10);
  stream.say({ case: "cancel", value: { runId: "a", reason: "nobody reads" } });
  stream.run("b", "b");
  stream.say({ case: "credit", value: { runId: "b", results: 100 } });
  assert.equal((await stream.until("b", 20)).length, 20);
  stream.say({ case: "cancel", value: { runId: "b" } });
  stream.say({ case: "cancel", value: { runId: "unknown" } });
  stream.say({ case: "credit", value: { runId: "a", results: 100 } });
  assert.ok(await stream.isQuiet());
  assert.deepEqual(stopped.sort(), ["a", "b"]);
});

test("an interrupt is answered when the run has said its last words", async () => {
  const { stream } = await attaching(async function* ({ signal }) {
    try {
      yield delta("begun");
      await sleep(60_000, undefined, { signal });
    } catch (error) {
      yield setState(StateScope.CONVERSATION, "stopped", true);
      throw error;
    }
  });
  stream.run("r");
  assert.deepEqual(await stream.until("r", 1), ["messageDelta"]);
  stream.say({ case: "interrupt", value: { runId: "r", reason: "cancelled" } });
  assert.deepEqual(await stream.until("r"), ["stateUpdated", "runFailed", "runEnded"]);
  for (const wasActive of [true, false]) {
    const answer = await stream.next();
    assert.ok(answer.case === "interruptAnswer");
    assert.deepEqual([answer.value.runId, answer.value.wasActive], ["r", wasActive]);
    stream.say({ case: "interrupt", value: { runId: "r" } });
  }
});

test("who leaves says so, ends its runs, closes its side, and does not come back", async () => {
  let finish = () => {};
  const { stream, serving, attached } = await attaching(async function* () {
    yield delta("begun");
    await new Promise<void>((resolve) => (finish = resolve));
    yield delta(", finished");
  });
  stream.run("r");
  assert.deepEqual(await stream.until("r", 1), ["messageDelta"]);
  const closed = serving.close(10_000);
  const health = await stream.next();
  assert.ok(health.case === "health");
  assert.equal(health.value.serving, false);
  stream.run("late");
  const refused = await stream.next();
  assert.ok(refused.case === "runEnded");
  assert.deepEqual([refused.value.runId, refused.value.statusCode], ["late", grpc.status.UNAVAILABLE]);
  finish();
  assert.deepEqual(await stream.until("r"), ["messageDelta", "runCompleted", "runEnded"]);
  await stream.ended();
  assert.ok(await stream.isQuiet());
  assert.ok(!stream.call.cancelled, "it waits for the host to end the stream");
  stream.call.end();
  await closed;
  const again = await Promise.race([attached(), sleep(500)]);
  assert.equal(again, undefined);
});

test("a dropped stream ends its runs, and is opened again", async () => {
  const reasons: unknown[] = [];
  const { stream, attached } = await attaching(async function* ({ signal }) {
    yield delta("begun");
    await sleep(60_000, undefined, { signal }).catch((error: Error) => reasons.push(error.cause));
  });
  stream.run("r");
  assert.deepEqual(await stream.until("r", 1), ["messageDelta"]);
  stream.call.emit("error", { code: grpc.status.UNAVAILABLE, details: "the host shuts down" });
  const again = await attached();
  assert.equal((await again.next()).case, "hello");
  assert.equal(reasons.length, 1);
  again.welcome();
  again.run("s");
  assert.deepEqual(await again.until("s", 1), ["messageDelta"]);
  // What a host closes in peace is opened again as well.
  again.call.end();
  assert.equal((await (await attached()).next()).case, "hello");
});

test("what a host refuses for good is not tried again, and said in its words", async () => {
  const { stream, refuse, serving, attached } = await attaching(async function* () {});
  refuse(grpc.status.UNAUTHENTICATED, "the token was revoked");
  stream.call.emit("error", { code: grpc.status.UNAVAILABLE, details: "once more, please" });
  await assert.rejects(serving.refused, /^Error: 127.0.0.1:\d+ refuses: UNAUTHENTICATED: the token was revoked$/);
  assert.equal(await Promise.race([attached(), sleep(500)]), undefined);
});

test("a host that is not there is dialled until it is left", async () => {
  const plugin = definePlugin({ author: "acme", name: "test", version: "1" }, [], {});
  const serving = await start(plugin, { attach: { host: "127.0.0.1:1", token }, tls: undefined });
  assert.equal(await Promise.race([serving.refused.catch(() => "refused"), sleep(500)]), undefined);
  await serving.close();
});

test("a token does not go where others can listen in", async () => {
  const plugin = definePlugin({ author: "acme", name: "test", version: "1" }, [], {});
  const attach = { host: "host.example:7443", token };
  await assert.rejects(start(plugin, { attach, tls: undefined }), /can be listened in on/);
  await assert.rejects(start(plugin, { attach: { host: "127.0.0.1:1", token: "" }, tls: undefined }), /no token/);
  const serving = await start(plugin, { attach: { ...attach, host: "192.0.2.1:1", insecure: true }, tls: undefined });
  await serving.close();
});

test("a host with a certificate is attached to, and one whose certificate nobody vouches for is not", async () => {
  const folder = mkdtempSync(join(tmpdir(), "runmesh-sdk-"));
  closing.push(() => rmSync(folder, { recursive: true }));
  const [certificate, key, other] = [join(folder, "cert.pem"), join(folder, "key.pem"), join(folder, "other.pem")];
  const request = ["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"];
  const names = ["-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"];
  for (const out of [other, certificate]) {
    execFileSync("openssl", [...request, ...names, "-out", out, "-keyout", key], { stdio: "ignore" });
  }
  const pair = { cert_chain: readFileSync(certificate), private_key: readFileSync(key) };
  const { address, attached } = await host(grpc.ServerCredentials.createSsl(null, [pair]));
  const plugin = definePlugin({ author: "acme", name: "test", version: "1" }, [], {});
  const stranger = await start(plugin, { attach: { host: address, token }, tls: { hostCa: other } });
  const first = attached();
  assert.equal(await Promise.race([first, sleep(500)]), undefined);
  await stranger.close();
  const serving = await start(plugin, { attach: { host: address, token }, tls: { hostCa: certificate } });
  closing.push(() => serving.close());
  assert.equal((await (await first).next()).case, "hello");
});

test("the environment says whether to attach", () => {
  assert.equal(attachFromEnvironment({ RUNMESH_ATTACH_TOKEN: token }), undefined);
  const environment = { RUNMESH_ATTACH: "h:1", RUNMESH_ATTACH_TOKEN: token, RUNMESH_DEVELOPMENT: "1" };
  assert.deepEqual(attachFromEnvironment(environment), { host: "h:1", token, development: true, insecure: false });
});
