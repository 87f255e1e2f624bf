import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";
import { after, before, test } from "node:test";

import { create } from "@bufbuild/protobuf";
import * as grpc from "@grpc/grpc-js";

import { invalid, refusal, retryAfter } from "../errors.js";
import { HostError, type Result, type Run, connect, definePlugin, delta, reply, start } from "../index.js";
import { definitionOf } from "../rpc.js";
import { ask } from "../testing.js";
import {
  CreateArtifactResponseSchema,
  type CreateArtifactRequest,
  GetStateResponseSchema,
  HostAPIService,
  PageHistoryResponseSchema,
  type PageHistoryRequest,
  RunService,
  StateScope,
  StreamModelResponseSchema,
} from "../v1.js";

/** A host that answers as these tests ask, over real gRPC. */
const server = new grpc.Server({ "grpc.max_receive_message_length": -1 });
const calls: { metadata: grpc.Metadata; deadline: grpc.Deadline }[] = [];
let cancelled = 0;
let address = "";

function seen(call: grpc.ServerUnaryCall<unknown, unknown> | grpc.ServerReadableStream<unknown, unknown>): void {
  calls.push({ metadata: call.metadata, deadline: call.getDeadline() });
}

before(async () => {
  const entries = Array.from({ length: 5 }, (_, index) => ({ text: `item ${index}` }));
  server.addService(definitionOf(HostAPIService), {
    getState(call: grpc.ServerUnaryCall<{ key: string }, unknown>, answer: grpc.sendUnaryData<unknown>) {
      seen(call);
      const { key } = call.request;
      if (key === "none") answer(refusal("NOT_FOUND", "there is no value", { resource: key }));
      else if (key === "busy") answer(refusal("OVERLOADED", "later", { limit: "5" }, [retryAfter(2)]));
      else if (key === "bad") answer(invalid("key", "must be better"));
      else if (key === "plain") answer({ code: grpc.status.ABORTED, details: "no details" });
      else if (key === "slow") call.on("cancelled", () => (cancelled += 1));
      else answer(null, create(GetStateResponseSchema, { entry: { key, valueJson: "1", version: 2n ** 53n + 1n } }));
    },
    pageHistory({ request }: grpc.ServerUnaryCall<PageHistoryRequest, unknown>, answer: grpc.sendUnaryData<unknown>) {
      const from = Number(request.pageToken || 0);
      const nextPageToken = from + 2 < entries.length ? String(from + 2) : "";
      answer(null, create(PageHistoryResponseSchema, { items: entries.slice(from, from + 2), nextPageToken }));
    },
    async createArtifact(
      call: grpc.ServerReadableStream<CreateArtifactRequest, unknown>,
      answer: grpc.sendUnaryData<unknown>,
    ) {
      seen(call);
      const digest = createHash("sha256");
      let sizeBytes = 0n;
      for await (const { item } of call as AsyncIterable<CreateArtifactRequest>) {
        if (item.case === "header" && item.value.name === "refused") {
          answer(refusal("NOT_FOUND", "no room for it"));
          return;
        }
        if (item.case !== "chunk") continue;
        assert.ok(item.value.length <= 1024 * 1024);
        sizeBytes += BigInt(item.value.length);
        digest.update(item.value);
      }
      answer(
        null,
        create(CreateArtifactResponseSchema, { artifact: { artifactId: "a", sizeBytes, sha256: digest.digest() } }),
      );
    },
    async streamModel(call: grpc.ServerWritableStream<{ modelId: string }, unknown>) {
      call.on("cancelled", () => (cancelled += 1));
      for (const text of ["one", "two", "three"]) {
        call.write(create(StreamModelResponseSchema, { item: { case: "delta", value: { text } } }));
      }
      if (call.request.modelId === "breaks") call.emit("error", refusal("UNAVAILABLE", "it broke off"));
      else if (call.request.modelId !== "endless") call.end();
    },
  } as grpc.UntypedServiceImplementation);
  const port = await new Promise<number>((resolve, reject) => {
    server.bindAsync("127.0.0.1:0", grpc.ServerCredentials.createInsecure(), (error, found) =>
      error ? reject(error) : resolve(found),
    );
  });
  address = `127.0.0.1:${port}`;
});
after(() => server.forceShutdown());

async function calling(work: (run: Run) => Promise<string>, timeoutMs = 30_000): Promise<string> {
  const runner = async function* (run: Run): AsyncGenerator<Result> {
    yield reply(await work(run));
  };
  const outcome = await ask(runner, {
    timeoutMs,
    hostAccess: { address, runToken: "run-token", instanceToken: "instance-token" },
  });
  assert.equal(outcome.failure, undefined);
  return outcome.text;
}

async function errorOf(key: string): Promise<HostError> {
  let caught: unknown;
  await calling(async ({ host }) => {
    caught = await host.getState({ scope: StateScope.RUNNER, key }).catch((error: unknown) => error);
    return "x";
  });
  assert.ok(caught instanceof HostError);
  return caught;
}

test("each call carries both tokens and a deadline no later than the run's", async () => {
  calls.length = 0;
  const began = Date.now();
  await calling(async ({ host }) => {
    await host.getState({ key: "a" });
    await host.getState({ key: "a" }, { timeoutMs: 1_000, metadata: { "x-own": "mine" } });
    await host.upload({ type: "file" }, "text");
    return "x";
  }, 10_000);
  assert.equal(calls.length, 3);
  for (const { metadata } of calls) {
    assert.deepEqual(metadata.get("authorization"), ["Bearer run-token"]);
    assert.deepEqual(metadata.get("runmesh-instance"), ["instance-token"]);
  }
  const [first, second] = calls.map(({ deadline }) => Number(deadline) - began);
  assert.ok(first !== undefined && first > 5_000 && first < 11_000, `${first}`);
  assert.ok(second !== undefined && second < 5_000, `${second}`);
  assert.deepEqual(calls[1]?.metadata.get("x-own"), ["mine"]);
});

test("each call carries the trace that came with the run", async () => {
  calls.length = 0;
  const manifest = { name: "one", label: { text: { en_US: "One" } } };
  const plugin = definePlugin({ author: "acme", name: "test", version: "1" }, [manifest], {
    one: async function* ({ host }) {
      await host.getState({ key: "a" });
      yield reply("x");
    },
  });
  const serving = await start(plugin, { listen: "127.0.0.1:0", tls: undefined });
  const metadata = { traceparent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", tracestate: "a=1,b=2" };
  const request = {
    runnerId: "plugin:acme/test/one",
    context: { runId: "r" },
    hostAccess: { hostId: "h", address, runToken: "r", instanceToken: "i" },
  };
  for await (const _ of connect(RunService, serving.address).run(request, { metadata }));
  await serving.close();
  const [call] = calls;
  assert.deepEqual(call?.metadata.get("traceparent"), [metadata.traceparent]);
  assert.deepEqual(call?.metadata.get("tracestate"), [metadata.tracestate]);
  assert.equal(calls.length, 1);
});

test("64-bit integers keep all their digits", async () => {
  assert.equal(
    await calling(async ({ host }) => String((await host.getState({ key: "a" })).entry?.version)),
    "9007199254740993",
  );
});

test("errors have the contract's reason and what helps", async () => {
  const none = await errorOf("none");
  assert.deepEqual(
    [none.method, none.reason, none.message, none.retryable],
    ["GetState", "NOT_FOUND", "there is no value", false],
  );
  assert.equal(none.metadata["resource"], "none");
  const busy = await errorOf("busy");
  assert.deepEqual([busy.reason, busy.retryable, busy.retryAfterMs], ["OVERLOADED", true, 2000]);
  const bad = await errorOf("bad");
  assert.equal(bad.reason, "INVALID_ARGUMENT");
  assert.deepEqual([bad.violations[0]?.field, bad.violations[0]?.description], ["key", "must be better"]);
  const plain = await errorOf("plain");
  assert.deepEqual([plain.reason, plain.message], ["CONFLICT", "no details"]);
});

test("a host that is not there, or may not be called, is UNAVAILABLE", async () => {
  const reason = async (at: string) => {
    const outcome = await ask(
      async function* ({ host }) {
        yield reply(
          await host.getState({ key: "a" }).then(
            () => "answered",
            (error: HostError) => `${error.reason}: ${error.message}`,
          ),
        );
      },
      { hostAccess: { address: at, runToken: "secret" } },
    );
    return outcome.text;
  };
  assert.match(await reason(""), /^UNAVAILABLE: the host has no address/);
  assert.match(await reason("host.example:7443"), /^UNAVAILABLE: .*in the clear/);
  assert.match(await reason("127.0.0.1:1"), /^UNAVAILABLE: /);
});

test("history turns pages, and leaving it early asks for no more", async () => {
  const text = await calling(async ({ host }) => {
    const items: string[] = [];
    for await (const item of host.history()) items.push(item.text ?? "");
    for await (const item of host.history()) {
      items.push(item.text ?? "");
      break;
    }
    return items.join();
  });
  assert.equal(text, "item 0,item 1,item 2,item 3,item 4,item 0");
});

test("an artifact of any size is uploaded in chunks", async () => {
  const bytes = new Uint8Array(5 * 1024 * 1024 + 7).fill(7);
  async function* parts() {
    yield bytes.subarray(0, 3_000_000);
    yield bytes.subarray(3_000_000);
  }
  const digest = createHash("sha256").update(bytes).digest("hex");
  const told = await calling(async ({ host }) => {
    const refs = [await host.upload({ type: "file" }, bytes), await host.upload({ type: "file" }, parts())];
    return refs.map(({ sizeBytes, sha256 }) => `${sizeBytes} ${Buffer.from(sha256).toString("hex")}`).join();
  });
  assert.equal(told, `${bytes.length} ${digest},${bytes.length} ${digest}`);
});

test("an upload that is refused in the middle says why", async () => {
  const told = await calling(async ({ host }) => {
    const refused: unknown = await host
      .upload({ type: "file", name: "refused" }, new Uint8Array(30 * 1024 * 1024))
      .catch((error: unknown) => error);
    return refused instanceof HostError ? `${refused.method} ${refused.reason}` : String(refused);
  });
  assert.equal(told, "CreateArtifact NOT_FOUND");
});

test("a stream gives what came before it broke", async () => {
  const told = await calling(async ({ host }) => {
    const texts: string[] = [];
    try {
      for await (const { item } of host.streamModel({ modelId: "breaks" }))
        texts.push(item.case === "delta" ? item.value.text : "");
    } catch (error) {
      texts.push((error as HostError).reason);
    }
    return texts.join();
  });
  assert.equal(told, "one,two,three,UNAVAILABLE");
});

test("leaving a stream, and a stopped run, end the call at the host", async () => {
  cancelled = 0;
  await calling(async ({ host }) => {
    for await (const _ of host.streamModel({ modelId: "endless" })) break;
    const signal = AbortSignal.timeout(50);
    await assert.rejects(host.getState({ key: "slow" }, { signal }), (error) => error === signal.reason);
    return "x";
  });
  const { failure } = await ask(
    async function* ({ host }) {
      yield delta("asking");
      await host.getState({ key: "slow" });
    },
    { timeoutMs: 500, hostAccess: { address, runToken: "r", instanceToken: "i" } },
  ).catch(() => ({ failure: undefined }));
  for (let look = 0; cancelled < 3 && look < 100; look++) await sleep(50);
  assert.equal(cancelled, 3);
  assert.ok(failure === undefined || failure.code === "runner.timeout");
});
