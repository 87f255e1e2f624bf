/** Runs a runner in a test as a host does: over a real connection, one event at a time. */
import { randomUUID } from "node:crypto";

import type { RunContext } from "./gen/runmesh/v1/context_pb.js";
import { EventSource } from "./gen/runmesh/v1/event_pb.js";
import type { RunFailed, RunResult } from "./gen/runmesh/v1/result_pb.js";
import { type HostAccess, RunService } from "./gen/runmesh/v1/run_pb.js";
import { type Runner, definePlugin } from "./plugin.js";
import { connect } from "./rpc.js";
import { start } from "./serve.js";

type Fields<M> = Partial<Omit<M, "$typeName" | "$unknown">>;

/** What is asked. */
export interface Asked {
  text?: string;
  config?: object;
  /** Anything else of the run's context. */
  context?: Fields<RunContext>;
  /** Where the runner finds a host; without it, calls to it are refused as UNAVAILABLE. */
  hostAccess?: Fields<HostAccess>;
  timeoutMs?: number;
}

/** What came of it. */
export interface Outcome {
  /** The message as somebody sees it: the last whole one, else its deltas. */
  readonly text: string;
  readonly results: readonly RunResult[];
  readonly failure: RunFailed | undefined;
}

/** Runs a runner once, on a message. */
export async function ask(runner: Runner, asked: Asked = {}): Promise<Outcome> {
  const manifest = { name: "tested", label: { text: { en_US: "Tested" } }, capabilities: { streaming: true } };
  const plugin = definePlugin({ author: "test", name: "test", version: "0" }, [manifest], { tested: runner });
  const serving = await start(plugin, { listen: "127.0.0.1:0", tls: undefined });
  try {
    const results: RunResult[] = [];
    const { timeoutMs = 30_000, text = "", config = {} } = asked;
    const request = {
      runnerId: "plugin:test/test/tested",
      hostAccess: { hostId: "test", ...asked.hostAccess },
      context: {
        runId: randomUUID(),
        trigger: { type: "message.received", source: EventSource.API },
        event: { eventId: randomUUID(), type: "message.received", source: EventSource.API },
        input: { text },
        agentId: "test",
        sessionKey: "test",
        configJson: JSON.stringify(config),
        ...asked.context,
      },
    };
    for await (const frame of connect(RunService, serving.address).run(request, { timeoutMs }))
      results.push(...frame.results);
    return outcomeOf(results);
  } finally {
    await serving.close();
  }
}

function outcomeOf(results: RunResult[]): Outcome {
  let shown = "";
  let whole: string | undefined;
  let failure: RunFailed | undefined;
  for (const { payload } of results) {
    if (payload.case === "messageDelta") shown += payload.value.text;
    if (payload.case === "messageCompleted") {
      const parts = payload.value.message?.parts ?? [];
      whole = parts.map(({ content }) => (content.case === "text" ? content.value : "")).join("");
    }
    if (payload.case === "runFailed") failure = payload.value;
  }
  return { text: whole ?? shown, results, failure };
}
