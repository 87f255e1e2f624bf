/**
 * One execution.
 *
 *   the author's generator -- one result at a time --> Outbox: numbered, encoded --> its Way, when that has room
 *
 * A run is stopped through its signal: whatever waits with it ends at once, and what the generator yields in answer is
 * still sent. One that goes on as if nothing had happened meets the signal's reason at a `yield`; one that does not come
 * back at all is left alone, and the run ended without it.
 */
import { setMaxListeners } from "node:events";

import { create, toBinary } from "@bufbuild/protobuf";
import { timestampNow } from "@bufbuild/protobuf/wkt";

import type { Circumstances, Host, Hosts } from "./host.js";
import type { RunContext } from "./gen/runmesh/v1/context_pb.js";
import { RunResultSchema, StateScope } from "./gen/runmesh/v1/result_pb.js";
import type { Runner } from "./plugin.js";
import { Failure, type Result, completed, failed, isTerminal } from "./results.js";

/** How long a stopped run may go on saying something. */
const lastWordsMs = 1000;
/** After this the run ends without its generator. */
const leftAloneMs = 2000;
const resultBytes = 1024 * 1024;
/** What is filled in when a result is sent has room in this. */
const filledInBytes = 512;
/** What a frame has around its results is in the rest of 3 MiB. */
const frameBytes = 3 * 1024 * 1024 - 4096;
const frameResults = 512;

/** Why a run was stopped from outside: the reason of its signal. */
export class RunStopped extends Failure {}

export const timedOut = new RunStopped("runner.timeout", "the run took longer than it may");
export const interrupted = new RunStopped("cancelled", "the run was interrupted");
export const callerLeft = new RunStopped("cancelled", "the call was cancelled");
export const shutDown = new RunStopped("runner.unavailable", "the runner's process is shutting down", {
  retryable: true,
});

/** What a runner is handed. */
export class Run {
  /** Ends when the run is cancelled, interrupted, or out of time. */
  readonly signal: AbortSignal;
  /** Calls to the host that the run came from. */
  readonly host: Host;
  /** Everything that came with the run, in the contract's form: `context.resources` says what it may use. */
  readonly context: RunContext;
  readonly #settings: string;

  constructor(context: RunContext, settings: string, hosts: Hosts, circumstances: Circumstances) {
    this.context = context;
    this.signal = circumstances.signal;
    this.host = hosts.of(circumstances);
    this.#settings = settings;
  }

  /** What was said; empty where nothing was. */
  get text(): string {
    return this.context.input?.text ?? "";
  }

  /** The agent's configuration. `context.configJson` has the digits of integers that are no safe numbers. */
  config<T extends object>(): Partial<T> {
    return JSON.parse(this.context.configJson || "{}") as Partial<T>;
  }

  /** What the host's operator set for the plugin as a whole, secrets included. */
  settings<T extends object>(): Partial<T> {
    return JSON.parse(this.#settings || "{}") as Partial<T>;
  }

  /** A value of state as it was when the run started; undefined where there was none. */
  stateAtStart(scope: StateScope, key: string): unknown {
    const state = this.context.state;
    // A later version may have more scopes.
    const scopes: Partial<Record<StateScope, Record<string, string> | undefined>> = {
      [StateScope.CONVERSATION]: state?.conversationJson,
      [StateScope.ACTOR]: state?.actorJson,
      [StateScope.SUBJECT]: state?.subjectJson,
      [StateScope.RUNNER]: state?.runnerJson,
      [StateScope.BINDING]: state?.bindingJson,
      [StateScope.WORKSPACE]: state?.workspaceJson,
    };
    const values = scopes[scope];
    const value = values && Object.hasOwn(values, key) ? values[key] : undefined;
    return value === undefined ? undefined : (JSON.parse(value) as unknown);
  }
}

/** The way that a run's results take to whoever reads them: a call, or a part of an attached stream. */
export interface Way {
  /** Resolves, as soon as a result may be sent, with how many may. */
  room(): Promise<number>;
  /** Sends encoded `RunResult`s, no more than there is room for; resolves when the connection has taken them. */
  send(results: readonly Uint8Array[]): Promise<void>;
}

/**
 * Numbers results and sends them: the only place that does.
 *
 * What is yielded before the event loop turns goes into one frame. Nothing waits longer than that, since until then
 * nothing could be written anyway. While the reader is slow, `send` waits.
 */
class Outbox {
  /** The terminal result has been sent. */
  over = false;
  #sequence = 0n;
  #waiting: Uint8Array[] = [];
  #bytes = 0;
  #flushing: Promise<void> | undefined;
  #hasRoom: () => void = () => {};

  constructor(
    private readonly way: Way,
    private readonly runId: string,
    private readonly left: AbortSignal,
  ) {}

  async send(result: Result): Promise<void> {
    const numbered = create(RunResultSchema, {
      payload: result.payload,
      runId: this.runId,
      sequence: this.#sequence + 1n,
      timestamp: result.timestamp ?? timestampNow(),
      mustUnderstand: result.mustUnderstand ?? false,
      metadata: result.metadata ?? {},
    });
    const encoded = toBinary(RunResultSchema, numbered);
    const inline = inlineBytes(result);
    if (inline > resultBytes || encoded.length - inline > resultBytes - filledInBytes) {
      throw new RangeError(
        `a result has ${encoded.length} bytes, ${inline} of them inline: at most ${resultBytes} each can be sent`,
      );
    }
    this.#sequence += 1n;
    this.over = isTerminal(result);
    while (this.#waiting.length >= frameResults || this.#bytes + encoded.length > frameBytes) await this.#room();
    this.#waiting.push(encoded);
    this.#bytes += encoded.length;
    this.#flushing ??= this.#flush();
  }

  /** Waits until what was sent is on its way, or nobody reads it any more. */
  async flushed(): Promise<void> {
    await this.#flushing;
  }

  async #flush(): Promise<void> {
    await new Promise((resolve) => setImmediate(resolve));
    for (;;) {
      let most = 0;
      if (this.#waiting.length) await this.#orLeft(this.way.room().then((room) => (most = room)));
      if (!this.#waiting.length || this.left.aborted) break;
      const frame = this.#waiting.splice(0, most);
      for (const { length } of frame) this.#bytes -= length;
      this.#hasRoom();
      await this.#orLeft(this.way.send(frame));
    }
    [this.#waiting, this.#bytes, this.#flushing] = [[], 0, undefined];
    this.#hasRoom();
  }

  /** Waits until a frame more can be filled. */
  #room(): Promise<void> {
    return new Promise((resolve) => (this.#hasRoom = resolve));
  }

  /** Waits for work, or until nobody reads any more. */
  #orLeft(work: Promise<unknown>): Promise<void> {
    return new Promise((resolve) => {
      const done = () => {
        this.left.removeEventListener("abort", done);
        resolve();
      };
      this.left.addEventListener("abort", done);
      if (this.left.aborted) done();
      void work.then(done);
    });
  }
}

/** A run under way: stops it from outside. */
export class ActiveRun {
  readonly ended: Promise<void>;
  #stopped = new AbortController();
  #left = new AbortController();
  #stoppedAt = Infinity;
  #giveUp: () => void = () => {};
  #timer: NodeJS.Timeout | undefined;
  #ended: () => void = () => {};

  constructor(
    readonly id: string,
    readonly canBeInterrupted: boolean,
  ) {
    this.ended = new Promise((resolve) => (this.#ended = resolve));
    for (const { signal } of [this.#stopped, this.#left]) setMaxListeners(0, signal);
  }

  get signal(): AbortSignal {
    return this.#stopped.signal;
  }

  /** Nobody reads its results any more. */
  get isLeft(): boolean {
    return this.#left.signal.aborted;
  }

  /** Stops it; the first reason holds, but for a caller that leaves: then nobody reads what it still says. */
  stop(reason: RunStopped): void {
    if (reason === callerLeft) this.#left.abort(reason);
    if (!this.signal.aborted) {
      this.#stoppedAt = Date.now();
      this.#timer = setTimeout(() => this.#giveUp(), leftAloneMs);
      this.#stopped.abort(reason);
    }
  }

  /** Runs the author's code to its end, and says how it ended. */
  async execute(runner: Runner, run: Run, way: Way): Promise<void> {
    const outbox = new Outbox(way, this.id, this.#left.signal);
    try {
      const ending = await this.#ending(runner, run, outbox);
      if (!outbox.over && !this.isLeft) {
        await outbox.send(ending).catch((error: unknown) => outbox.send(failed(this.#failureOf(error))));
      }
      await outbox.flushed();
    } finally {
      clearTimeout(this.#timer);
      this.#ended();
    }
  }

  async #ending(runner: Runner, run: Run, outbox: Outbox): Promise<Result> {
    try {
      const results = runner(run)[Symbol.asyncIterator]();
      let step = results.next();
      for (;;) {
        const next = await this.#orGivenUp(step, results);
        if (next.done) return this.signal.aborted ? failed(this.#reason) : completed();
        if (!this.isLeft) await outbox.send(next.value);
        if (outbox.over) {
          results.return?.().catch(() => {});
          return next.value;
        }
        step = this.#mustEnd && results.throw ? results.throw(this.#reason) : results.next();
      }
    } catch (error) {
      return failed(this.#failureOf(error));
    }
  }

  get #reason(): RunStopped {
    return this.signal.reason as RunStopped;
  }

  get #mustEnd(): boolean {
    return this.isLeft || Date.now() - this.#stoppedAt > lastWordsMs;
  }

  /** Waits for a step of the generator; rejects when it is left alone, which it hears should it come back. */
  #orGivenUp(step: Promise<IteratorResult<Result>>, results: AsyncIterator<Result>): Promise<IteratorResult<Result>> {
    return new Promise((resolve, reject) => {
      this.#giveUp = () => {
        reject(this.#reason);
        step.then(() => results.throw?.(this.#reason)).catch(() => {});
      };
      step.then(resolve, reject);
    });
  }

  #failureOf(error: unknown): Failure {
    if (error instanceof Failure) return error;
    if (this.signal.aborted && isStop(error)) return this.#reason;
    console.error(`run ${this.id} failed:`, error);
    return new Failure("runner.error", error instanceof Error ? error.message || error.name : String(error));
  }
}

/** Whether an error is no more than the end of what was waited for: `AbortError`, by the platform's convention. */
function isStop(error: unknown): boolean {
  return error instanceof Error && (error.name === "AbortError" || error.cause instanceof RunStopped);
}

function inlineBytes({ payload }: Result): number {
  if (payload.case !== "artifactCreated" || payload.value.artifact.case !== "inline") return 0;
  return payload.value.artifact.value.data.length;
}
