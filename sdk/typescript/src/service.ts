/** Answers hosts: `DiscoveryService` and `RunService`. */
import { randomUUID } from "node:crypto";

import { type MessageShape, create } from "@bufbuild/protobuf";
import { durationMs } from "@bufbuild/protobuf/wkt";
import * as grpc from "@grpc/grpc-js";

import { invalid, refusal, retryAfter } from "./errors.js";
import {
  type HandshakeRequest,
  HandshakeResponseSchema,
  type ListRunnersRequest,
  ListRunnersResponseSchema,
} from "./gen/runmesh/v1/discovery_pb.js";
import { type InterruptRequest, InterruptResponseSchema, type RunRequest } from "./gen/runmesh/v1/run_pb.js";
import type { RunnerManifest } from "./gen/runmesh/v1/manifest_pb.js";
import { Hosts } from "./host.js";
import { type Plugin, protocolVersion } from "./plugin.js";
import { ActiveRun, Run, type RunStopped, callerLeft, interrupted, timedOut } from "./run.js";
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

/** Answers hosts for one plugin. */
export class Service {
  readonly hosts: Hosts;
  readonly #instanceId = randomUUID();
  readonly #settings = new Map<string, string>();
  readonly #active = new Set<ActiveRun>();
  #draining = false;

  constructor(
    private readonly plugin: Plugin,
    private readonly maxConcurrentRuns: number,
    tls: Tls | undefined,
  ) {
    this.hosts = new Hosts(tls);
  }

  readonly handshake: Unary<HandshakeRequest, typeof HandshakeResponseSchema> = ({ request }, answer) => {
    const isCommon = request.protocolVersions.includes(protocolVersion);
    if (isCommon) this.#settings.set(request.hostId, request.settingsJson ?? "{}");
    answer(
      null,
      create(HandshakeResponseSchema, {
        protocolVersion: isCommon ? protocolVersion : "",
        pluginId: this.plugin.id,
        pluginVersion: this.plugin.version,
        sdkName: "@runmesh/sdk",
        sdkLanguage: "typescript",
        sdkVersion: version,
        maxConcurrentRuns: this.maxConcurrentRuns,
        instanceId: this.#instanceId,
      }),
    );
  };

  readonly listRunners: Unary<ListRunnersRequest, typeof ListRunnersResponseSchema> = (_, answer) => {
    const runners = [...this.plugin.served.values()].map(({ manifest }) => manifest);
    answer(null, create(ListRunnersResponseSchema, { runners }));
  };

  readonly run = (call: grpc.ServerWritableStream<RunRequest, Uint8Array>): void => {
    const { request } = call;
    const served = this.plugin.served.get(request.runnerId);
    const refused = this.#refusalOf(request, served !== undefined);
    if (refused || !served || !request.context) {
      call.emit("error", refused);
      return;
    }
    const active = new ActiveRun(request.context.runId, canBeInterrupted(served));
    this.#active.add(active);
    const deadline = deadlineOf(call);
    const left = deadline - Date.now();
    const timer = left < longestTimerMs ? setTimeout(() => active.stop(timedOut), left) : undefined;
    call.on("cancelled", () => active.stop(callerLeft));
    const run = new Run(request.context, this.#settings.get(request.hostAccess?.hostId ?? "") ?? "{}", this.hosts, {
      access: request.hostAccess,
      trace: traceOf(call.metadata),
      deadline,
      signal: active.signal,
    });
    void active.execute(served.runner, run, call).finally(() => {
      clearTimeout(timer);
      this.#active.delete(active);
      call.end();
    });
  };

  readonly interrupt: Unary<InterruptRequest, typeof InterruptResponseSchema> = ({ request }, answer) => {
    const runs = [...this.#active].filter((run) => run.id === request.runId);
    const isAble = [...this.plugin.served.values()].some(canBeInterrupted) && runs.every((run) => run.canBeInterrupted);
    if (!isAble) {
      answer(
        refusal("NOT_IMPLEMENTED", "the runner's manifest has no capability `interrupt`", { run_id: request.runId }),
      );
      return;
    }
    for (const run of runs) run.stop(interrupted);
    void Promise.all(runs.map((run) => run.ended)).then(() => {
      answer(null, create(InterruptResponseSchema, { wasActive: runs.length > 0 }));
    });
  };

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

/** When the run is out of time: its own timeout counts from now, the call's deadline is gRPC's. */
function deadlineOf(call: grpc.ServerWritableStream<RunRequest, Uint8Array>): number {
  const { timeout } = call.request;
  const earliest = Math.min(timeout ? Date.now() + durationMs(timeout) : Infinity, Number(call.getDeadline()));
  // What gRPC is given where a call has no deadline may be further away than a call can say.
  return earliest < Date.now() + noDeadlineMs ? earliest : Infinity;
}

function traceOf(metadata: grpc.Metadata): Record<string, string> {
  const entries = ["traceparent", "tracestate"].flatMap((key) => {
    const value = metadata.get(key).join(",");
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
