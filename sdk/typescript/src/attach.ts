/**
 * Attaches to a host instead of listening for one: dials it, and again when the stream ends.
 *
 *   Attachment: dial, hello, welcome --> AttachedStream: runs come down, results go up --> ended --> a pause --> again
 */
import { setTimeout as sleep } from "node:timers/promises";

import type { MessageInitShape } from "@bufbuild/protobuf";
import { BinaryWriter, WireType } from "@bufbuild/protobuf/wire";
import * as grpc from "@grpc/grpc-js";

import { hostError } from "./errors.js";
import { AttachService, type AttachRequestSchema, type AttachResponse } from "./gen/runmesh/v1/attach_pb.js";
import type { InterruptRequest, RunRequest } from "./gen/runmesh/v1/run_pb.js";
import { protocolVersion } from "./plugin.js";
import { metadataOf, openBoth } from "./rpc.js";
import { type ActiveRun, type Way, callerLeft } from "./run.js";
import { type Front, type Service, resultsField } from "./service.js";

const firstPauseMs = 100;
const longestPauseMs = 10_000;
const welcomeMs = 15_000;
/** What a host gets to read the last of it; one that lives ends the stream at once. */
const flushMs = 2_000;

/** Another try changes nothing about these. */
const forGood: ReadonlySet<grpc.status> = new Set([
  grpc.status.UNAUTHENTICATED,
  grpc.status.PERMISSION_DENIED,
  grpc.status.FAILED_PRECONDITION,
  grpc.status.INVALID_ARGUMENT,
  grpc.status.UNIMPLEMENTED,
]);

const connectionOptions: grpc.ChannelOptions = {
  // A connection of its own: what runs up- and download does not come in its way.
  "grpc.use_local_subchannel_pool": 1,
  // A host that is gone without a word, or a router that forgot us, is noticed by pings.
  "grpc.keepalive_time_ms": 10_000,
  "grpc.keepalive_timeout_ms": 10_000,
  "grpc.keepalive_permit_without_calls": 1,
};

/** The host to attach to. */
export interface Attach {
  /** `host:port` or `unix:/path`. */
  host: string;
  /** Secret: the attach token that was issued for the plugin. */
  token: string;
  /** While it is attached, this process takes the runs of the plugin's others. */
  development?: boolean;
  /** Token and runs may go without TLS to an address that others can listen in on. */
  insecure?: boolean;
}

/** What RUNMESH_ATTACH, _ATTACH_TOKEN, _DEVELOPMENT and _ATTACH_INSECURE say; undefined without the first. */
export function attachFromEnvironment(environment = process.env): Attach | undefined {
  const host = environment["RUNMESH_ATTACH"];
  if (!host) return undefined;
  return {
    host,
    token: environment["RUNMESH_ATTACH_TOKEN"] ?? "",
    development: environment["RUNMESH_DEVELOPMENT"] === "1",
    insecure: environment["RUNMESH_ATTACH_INSECURE"] === "1",
  };
}

/** Begins to attach a service, and keeps it attached. */
export function attach(service: Service, to: Attach): Front {
  if (!to.token) {
    throw new Error("no token to attach with: `runmesh runners token` makes one; put it into RUNMESH_ATTACH_TOKEN");
  }
  if (!to.insecure && !service.hosts.isPrivateTo(to.host)) {
    const why = `${to.host} can be listened in on, and there is no TLS`;
    throw new Error(`${why}: set RUNMESH_TLS_HOST_CA, or RUNMESH_ATTACH_INSECURE=1`);
  }
  return new Attachment(service, to);
}

class Attachment implements Front {
  readonly refused: Promise<never>;
  readonly flushMs = flushMs;
  readonly #kept: Promise<void>;
  readonly #left = new AbortController();
  #stream: AttachedStream | undefined;
  #isLeaving = false;
  #refuse: (why: Error) => void = () => {};

  constructor(
    private readonly service: Service,
    private readonly to: Attach,
  ) {
    this.refused = new Promise((_, reject) => (this.#refuse = reject));
    this.refused.catch(() => {}); // whoever waits for it hears it
    this.#kept = this.#keep();
  }

  get address(): string {
    return this.to.host;
  }

  /** What ends the stream from now on is not dialled again. */
  drain(): void {
    this.#isLeaving = true;
    this.#stream?.say({ case: "health", value: { serving: false } });
  }

  async finish(): Promise<void> {
    if (!this.#stream) return;
    this.#stream.finish();
    await this.#kept;
  }

  async close(): Promise<void> {
    this.#left.abort();
    await this.#kept;
  }

  async #keep(): Promise<void> {
    const { host } = this.to;
    for (let pauseMs = firstPauseMs; ; pauseMs = Math.min(2 * pauseMs, longestPauseMs)) {
      const { wasWelcome, problem, isForGood } = await this.#once();
      if (this.#isLeaving || this.#left.signal.aborted) return;
      if (isForGood) return this.#refuse(new Error(`${host} refuses: ${problem}`));
      if (wasWelcome) pauseMs = firstPauseMs;
      console.error(`not attached to ${host}: ${problem}`);
      // All that lost the same host shall not come back in the same moment.
      await sleep(pauseMs * (0.5 + Math.random()), undefined, { signal: this.#left.signal }).catch(() => {});
    }
  }

  /** Attaches for as long as it lasts; resolves with whether it did, and why it ended. */
  async #once(): Promise<{ wasWelcome: boolean; problem: string; isForGood: boolean }> {
    const channel = this.service.hosts.dial(this.to.host, connectionOptions);
    const metadata = metadataOf({ authorization: `Bearer ${this.to.token}` });
    const call = openBoth(AttachService.method.attach, { channel, metadata, deadline: Infinity }) as Call;
    const stream = new AttachedStream(this.service, this.to.host, call);
    const leave = () => call.cancel();
    this.#left.signal.addEventListener("abort", leave);
    let problem = "the host has closed the stream";
    const late = setTimeout(() => {
      problem = "the host does not answer";
      call.cancel();
    }, welcomeMs);
    let isForGood = false;
    try {
      stream.say({ case: "hello", value: this.#hello() });
      for await (const answer of call) {
        if (stream.isWelcome) stream.heed(answer);
        else if (!stream.greet(answer)) throw new Error("what answers is no host: it sent no welcome");
        else {
          clearTimeout(late);
          if (this.#isLeaving) break;
          this.#stream = stream;
        }
      }
    } catch (error) {
      const { code } = error as grpc.ServiceError;
      isForGood = forGood.has(code);
      const told = code === undefined ? undefined : hostError("Attach", error as grpc.ServiceError);
      if (code !== grpc.status.CANCELLED) problem = told ? `${told.reason}: ${told.message}` : (error as Error).message;
    } finally {
      clearTimeout(late);
      this.#stream = undefined;
      this.#left.signal.removeEventListener("abort", leave);
      stream.drop();
      channel.close();
    }
    return { wasWelcome: stream.isWelcome, problem, isForGood };
  }

  #hello(): Extract<Said, { case: "hello" }>["value"] {
    return {
      protocolVersions: [protocolVersion],
      handshake: this.service.introduction(""),
      runners: this.service.manifests,
      development: this.to.development ?? false,
      hostAddress: this.to.host,
    };
  }
}

type Said = NonNullable<MessageInitShape<typeof AttachRequestSchema>["message"]>;
type Call = grpc.ClientDuplexStream<object, AttachResponse>;

/** What may still be sent of one run. */
class Credit {
  #hasMore: () => void = () => {};

  constructor(private results: number) {}

  add(results: number): void {
    this.results += results;
    if (this.results > 0) this.#hasMore();
  }

  /** Waits until something may be sent; resolves with how many results. */
  async some(): Promise<number> {
    while (this.results <= 0) await new Promise<void>((resolve) => (this.#hasMore = resolve));
    return this.results;
  }
}

/**
 * One stream to a host. A run without credit fills its outbox, which holds its author back; no other run hears of it.
 */
class AttachedStream {
  isWelcome = false;
  #initialCredit = 0;
  #isOver = false;
  readonly #runs = new Map<string, { active: ActiveRun; credit: Credit }>();

  constructor(
    private readonly service: Service,
    private readonly host: string,
    private readonly call: Call,
  ) {
    call.on("error", () => {}); // whoever reads it hears how it ended
  }

  /** Takes the host's first message; returns whether it is a welcome. */
  greet({ message }: AttachResponse): boolean {
    if (message.case !== "welcome") return false;
    const { host, initialCredit } = message.value;
    if (host) this.service.welcomed(host);
    this.#initialCredit = initialCredit;
    this.isWelcome = true;
    console.error(`${this.service.plugin.id} is attached to ${host?.hostId ?? this.host}`);
    return true;
  }

  heed({ message, metadata }: AttachResponse): void {
    switch (message.case) {
      case "run":
        return this.#begin(message.value, metadata);
      case "credit":
        return this.#runs.get(message.value.runId)?.credit.add(message.value.results);
      case "cancel":
        return this.#runs.get(message.value.runId)?.active.stop(callerLeft);
      case "interrupt":
        void this.#interrupt(message.value);
    }
  }

  /** Sends a message, unless the stream is over; resolves when the connection has taken it. */
  say(message: Said | Uint8Array): Promise<void> {
    if (this.#isOver) return Promise.resolve();
    const request = message instanceof Uint8Array ? message : { message };
    return new Promise((resolve) => this.call.write(request, () => resolve()));
  }

  /** Closes this side of the stream: everything has been said. */
  finish(): void {
    this.#isOver = true;
    this.call.end();
  }

  /** Ends the stream, and its runs with it. */
  drop(): void {
    this.#isOver = true;
    this.call.cancel(); // of no effect but where it was left early
    for (const { active } of this.#runs.values()) active.stop(callerLeft);
  }

  #begin(request: RunRequest, metadata: Record<string, string>): void {
    const runId = request.context?.runId ?? "";
    if (request.hostAccess) request.hostAccess.address ||= this.host;
    const credit = new Credit(this.#initialCredit);
    const way: Way = { room: () => credit.some(), send: (results) => this.#send(runId, credit, results) };
    let active: ActiveRun;
    try {
      active = this.service.begin(request, { trace: (key) => metadata[key], deadline: Infinity, way });
    } catch (refused) {
      this.#end(runId, refused as grpc.ServerErrorResponse);
      return;
    }
    const run = { active, credit };
    this.#runs.set(runId, run);
    void active.ended.then(() => {
      if (this.#runs.get(runId) === run) this.#runs.delete(runId);
      if (!active.isLeft) this.#end(runId);
    });
  }

  #send(runId: string, credit: Credit, results: readonly Uint8Array[]): Promise<void> {
    credit.add(-results.length);
    const writer = new BinaryWriter().tag(2, WireType.LengthDelimited).fork();
    writer.tag(1, WireType.LengthDelimited).string(runId);
    return this.say(resultsField(writer, 2, results).join().finish());
  }

  #end(runId: string, { code = grpc.status.OK, details = "" }: Partial<grpc.StatusObject> = {}): void {
    void this.say({ case: "runEnded", value: { runId, statusCode: code, statusMessage: details } });
  }

  async #interrupt({ runId }: InterruptRequest): Promise<void> {
    // Where it cannot be interrupted, the host's next step is the same: it cancels the run.
    const wasActive = await this.service.interruptRun(runId).catch(() => this.#runs.has(runId));
    void this.say({ case: "interruptAnswer", value: { runId, wasActive } });
  }
}
