/** Answers hosts: `DiscoveryService` and `RunService`. */
import { randomUUID } from "node:crypto";

import { type MessageShape, create } from "@bufbuild/protobuf";
import { BinaryWriter, WireType } from "@bufbuild/protobuf/wire";
import { durationMs } from "@bufbuild/protobuf/wkt";
import * as grpc from "@grpc/grpc-js";

import { invalid, refusal, retryAfter } from "./errors.js";
import {
  type HandshakeRequest,
  type HandshakeResponse,
  HandshakeResponseSchema,
  type ListRunnersRequest,
  ListRunnersResponseSchema,
} from "./gen/runmesh/v1/discovery_pb.js";
import { type InterruptRequest, InterruptResponseSchema, type RunRequest } from "./gen/runmesh/v1/run_pb.js";
import type { RunnerManifest } from "./gen/runmesh/v1/manifest_pb.js";
import { Hosts } from "./host.js";
import { type Plugin, protocolVersion } from "./plugin.js";
import { ActiveRun, Run, type RunStopped, type Way, callerLeft, interrupted, timedOut } from "./run.js";
import type { Tls } from "./tls.js";

/** That of this SDK. */
export const version = "0.1.0";

/** What a timer of Node can wait for; a longer run has no deadline worth one. */
const longestTimerMs = 2 ** 31 - 1;
const noDeadlineMs = 365 * 86_400_000;

type Unary<I, S extends Parameters<typeof create>[0]> = (
  call: grpc.ServerUnaryCall<I, MessageShape<S>>,
  answer: grpc.sendUnaryData<MessageShape<S>>,
) => void;

/** How hosts reach a service. */
export interface Front {
  /** Where it listens, or the host that it dials. */
  readonly address: string;
  /** Rejects when the host that it dials will not have it. */
  readonly refused: Promise<never>;
  /** What the last frames and statuses get to leave. */
  readonly flushMs: number;
  /** Tells hosts that no more runs are taken. */
  drain(): void;
  /** Resolves when what was said has left. */
  finish(): Promise<void>;
  /** Leaves, whatever is under way. */
  close(): Promise<void>;
}

/** What comes with a run beside its request. */
export interface Beside {
  /** By a metadata key: `traceparent` or `tracestate`. */
  trace(key: string): string | undefined;
  /** In milliseconds since 1970; Infinity: none. */
  deadline: number;
  way: Way;
}

/** Answers hosts for one plugin. */
export class Service {
  readonly hosts: Hosts;
  readonly #instanceId = randomUUID();
  readonly #settings = new Map<string, string>();
  readonly #active = new Set<ActiveRun>();
  #draining = false;

  constructor(
    readonly plugin: Plugin,
    private readonly maxConcurrentRuns: number,
    tls: Tls | undefined,
  ) {
    this.hosts = new Hosts(tls);
  }

  readonly handshake: Unary<HandshakeRequest, typeof HandshakeResponseSchema> = ({ request }, answer) => {
    const isCommon = request.protocolVersions.includes(protocolVersion);
    if (isCommon) this.welcomed(request);
    answer(null, this.introduction(isCommon ? protocolVersion : ""));
  };

  readonly listRunners: Unary<ListRunnersRequest, typeof ListRunnersResponseSchema> = (_, answer) => {
    answer(null, create(ListRunnersResponseSchema, { runners: this.manifests }));
  };

  readonly run = (call: grpc.ServerWritableStream<RunRequest, Uint8Array>): void => {
    const way = {
      room: () => Promise.resolve(Infinity),
      send: (results: readonly Uint8Array[]) =>
        new Promise<void>((resolve) => call.write(resultsField(new BinaryWriter(), 1, results).finish(), resolve)),
    };
    const trace = (key: string) => call.metadata.get(key).join(",") || undefined;
    let active: ActiveRun;
    try {
      active = this.begin(call.request, { trace, deadline: Number(call.getDeadline()), way });
    } catch (refused) {
      call.emit("error", refused);
      return;
    }
    call.on("cancelled", () => active.stop(callerLeft));
    void active.ended.then(() => call.end());
  };

  readonly interrupt: Unary<InterruptRequest, typeof InterruptResponseSchema> = ({ request }, answer) => {
    this.interruptRun(request.runId).then(
      (wasActive) => answer(null, create(InterruptResponseSchema, { wasActive })),
      (refused: grpc.ServerErrorResponse) => answer(refused),
    );
  };

  /** What it serves. */
  get manifests(): RunnerManifest[] {
    return [...this.plugin.served.values()].map(({ manifest }) => manifest);
  }

  /** What a handshake is answered with. */
  introduction(pickedVersion: string): HandshakeResponse {
    return create(HandshakeResponseSchema, {
      protocolVersion: pickedVersion,
      pluginId: this.plugin.id,
      pluginVersion: this.plugin.version,
      sdkName: "@runmesh/sdk",
      sdkLanguage: "typescript",
      sdkVersion: version,
      maxConcurrentRuns: this.maxConcurrentRuns,
      instanceId: this.#instanceId,
    });
  }

  /** Takes to heart what a host says of itself. */
  welcomed({ hostId, settingsJson = "{}" }: HandshakeRequest): void {
    this.#settings.set(hostId, settingsJson);
  }

  /** Begins a run; throws a refusal of one that cannot be. */
  begin(request: RunRequest, beside: Beside): ActiveRun {
    const served = this.plugin.served.get(request.runnerId);
    const refused = this.#refusalOf(request, served !== undefined);
    if (refused || !served || !request.context) throw refused;
    const active = new ActiveRun(request.context.runId, canBeInterrupted(served));
    this.#active.add(active);
    const deadline = deadlineOf(request, beside.deadline);
    const left = deadline - Date.now();
    const timer = left < longestTimerMs ? setTimeout(() => active.stop(timedOut), left) : undefined;
    const run = new Run(request.context, this.#settings.get(request.hostAccess?.hostId ?? "") ?? "{}", this.hosts, {
      access: request.hostAccess,
      trace: traceOf(beside),
      deadline,
      signal: active.signal,
    });
    void active.execute(served.runner, run, beside.way).finally(() => {
      clearTimeout(timer);
      this.#active.delete(active);
    });
    return active;
  }

  /** Interrupts a run; resolves, when it has stopped, with whether it was under way. Rejects with a refusal. */
  async interruptRun(runId: string): Promise<boolean> {
    const runs = [...this.#active].filter((run) => run.id === runId);
    const isAble = [...this.plugin.served.values()].some(canBeInterrupted) && runs.every((run) => run.canBeInterrupted);
    if (!isAble) {
      throw refusal("NOT_IMPLEMENTED", "the runner's manifest has no capability `interrupt`", { run_id: runId });
    }
    for (const run of runs) run.stop(interrupted);
    await Promise.all(runs.map((run) => run.ended));
    return runs.length > 0;
  }

  /** Takes no more runs; resolves when those under way have ended. */
  async drain(): Promise<void> {
    this.#draining = true;
    await Promise.all([...this.#active].map((run) => run.ended));
  }

  stopAll(why: RunStopped): void {
    for (const run of this.#active) run.stop(why);
  }

  #refusalOf(request: RunRequest, isServed: boolean): grpc.ServerErrorResponse | undefined {
    if (this.#draining) return refusal("UNAVAILABLE", "the runner's process is shutting down and takes no more runs");
    if (!isServed) {
      return refusal("NOT_FOUND", `runner_id: '${request.runnerId}' is not served here`, {
        resource: request.runnerId,
      });
    }
    if (!request.context?.runId) return invalid("context.run_id", "must have 1 to 255 bytes, is empty");
    if (this.maxConcurrentRuns > 0 && this.#active.size >= this.maxConcurrentRuns) {
      const limit = String(this.maxConcurrentRuns);
      return refusal("OVERLOADED", `${limit} runs are under way, as many as this process takes`, { limit }, [
        retryAfter(1),
      ]);
    }
    return isJsonObject(request.context.configJson)
      ? undefined
      : invalid("context.config_json", "must be a JSON object");
  }
}

function canBeInterrupted({ manifest }: { manifest: RunnerManifest }): boolean {
  return manifest.capabilities?.interrupt ?? false;
}

/** Encoded results as a field, as several messages have it. */
export function resultsField(writer: BinaryWriter, field: number, results: readonly Uint8Array[]): BinaryWriter {
  for (const result of results) writer.tag(field, WireType.LengthDelimited).bytes(result);
  return writer;
}

/** When the run is out of time: its own timeout counts from now, the call's deadline is gRPC's. */
function deadlineOf({ timeout }: RunRequest, ofCall: number): number {
  const earliest = Math.min(timeout ? Date.now() + durationMs(timeout) : Infinity, ofCall);
  // What gRPC is given where a call has no deadline may be further away than a call can say.
  return earliest < Date.now() + noDeadlineMs ? earliest : Infinity;
}

function traceOf({ trace }: Beside): Record<string, string> {
  const entries = ["traceparent", "tracestate"].flatMap((key) => {
    const value = trace(key);
    return value ? [[key, value]] : [];
  });
  return Object.fromEntries(entries) as Record<string, string>;
}

function isJsonObject(text: string): boolean {
  try {
    const value: unknown = JSON.parse(text || "{}");
    return typeof value === "object" && value !== null && !Array.isArray(value);
  } catch {
    return false;
  }
}
