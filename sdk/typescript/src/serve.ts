/** Serves a plugin: listens where it is told or attaches to a host, drains, and ends with its host. */
import { rmSync } from "node:fs";
import { connect } from "node:net";
import { isAbsolute } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";

import * as grpc from "@grpc/grpc-js";

import { type Attach, attach, attachFromEnvironment } from "./attach.js";
import { DiscoveryService } from "./gen/runmesh/v1/discovery_pb.js";
import { RunService } from "./gen/runmesh/v1/run_pb.js";
import type { Plugin } from "./plugin.js";
import { channelOptions, definitionOf } from "./rpc.js";
import { shutDown } from "./run.js";
import { type Front, Service } from "./service.js";
import { Health, addReflection, standardServices } from "./standard.js";
import { type Tls, checkTls, isPrivate, isUnix, serverCredentials, tlsFromEnvironment } from "./tls.js";

/** What runs under way get when the process is told to end: under a host, which gives it 5 s, and elsewhere. */
const supervisedGraceMs = 4_000;
const graceMs = 30_000;
/** What stopped runs get to end. */
const cleanupMs = 3_000;
/** What the last frames and statuses get to leave. */
const flushMs = 300;
const parentLookMs = 500;

/** How a plugin is served; what is not said here, variables of the environment say. */
export interface ServeOptions {
  /** `unix:/path` or `host:port`; RUNMESH_LISTEN, or any free port of loopback. */
  listen?: string;
  /** A host to dial instead of listening for one; RUNMESH_ATTACH and its like, unless `listen` is said. */
  attach?: Attach;
  /** Without it only loopback and unix sockets are listened on; RUNMESH_TLS_CERT and its like. */
  tls?: Tls | undefined;
  /** 0: no limit. */
  maxConcurrentRuns?: number;
  /** What runs under way get when the process is told to end. */
  graceMs?: number;
}

/** A plugin that is served. */
export interface Serving {
  /** Where it listens, or the host that it attaches to. */
  readonly address: string;
  /** Rejects, with the host's words, when the host that it attaches to will not have it; never resolves. */
  readonly refused: Promise<never>;
  /** Takes no more runs, gives those under way their grace, and stops listening, or leaves the host. */
  close(graceMs?: number): Promise<void>;
}

/** Serves a plugin until the process is told to end, or its host is gone; then ends the process. */
export async function serve(plugin: Plugin, options: ServeOptions = {}): Promise<never> {
  const isSupervised = process.env["RUNMESH_SUPERVISED"] === "1";
  // Before anything else: a host that goes while this begins would never be missed.
  const parent = process.ppid;
  try {
    const serving = await start(plugin, options);
    console.error(`${plugin.id} ${attachOf(options) ? "attaches to" : "listens at"} ${serving.address}`);
    const ends = [told("SIGTERM"), told("SIGINT"), serving.refused, ...(isSupervised ? [parentGone(parent)] : [])];
    const why = await Promise.race(ends);
    console.error(`draining: ${why}`);
    const grace = options.graceMs ?? (isSupervised ? supervisedGraceMs : graceMs);
    await serving.close(why === hostGone ? 0 : grace);
  } catch (error) {
    console.error("cannot serve:", error instanceof Error ? error.message : error);
    process.exit(1);
  }
  process.exit(0);
}

/** Starts to serve a plugin, in this process. */
export async function start(plugin: Plugin, options: ServeOptions = {}): Promise<Serving> {
  const tls = "tls" in options ? options.tls : tlsFromEnvironment();
  checkTls(tls);
  const service = new Service(plugin, options.maxConcurrentRuns ?? 0, tls);
  const to = attachOf(options);
  const front = to ? attach(service, to) : await listenFor(service, options, tls);
  return {
    address: front.address,
    refused: front.refused,
    async close(grace = 0) {
      const drained = service.drain();
      front.drain();
      await within(grace, drained);
      service.stopAll(shutDown);
      await within(cleanupMs, drained);
      await within(front.flushMs, front.finish());
      await front.close();
      service.hosts.close();
    },
  };
}

function attachOf({ attach: said, listen }: ServeOptions): Attach | undefined {
  return said ?? (listen === undefined ? attachFromEnvironment() : undefined);
}

async function listenFor(service: Service, options: ServeOptions, tls: Tls | undefined): Promise<Front> {
  const listen = options.listen ?? (process.env["RUNMESH_LISTEN"] || "127.0.0.1:0");
  if (!tls?.certificate && !isPrivate(listen)) {
    throw new Error(
      `without TLS only loopback and unix sockets are listened on, not ${listen}: set RUNMESH_TLS_CERT and _KEY`,
    );
  }
  const server = new grpc.Server(channelOptions);
  const services = [DiscoveryService, RunService, ...standardServices];
  const health = new Health(services);
  const { handshake, listRunners, run, interrupt } = service;
  server.addService(definitionOf(DiscoveryService), { handshake, listRunners });
  server.addService(definitionOf(RunService), { run, interrupt });
  health.addTo(server);
  addReflection(server, services);
  const address = await bind(server, listen, serverCredentials(tls));
  return {
    address,
    refused: new Promise<never>(() => {}),
    flushMs,
    drain: () => health.shutDown(),
    finish: () => new Promise<void>((resolve) => server.tryShutdown(() => resolve())),
    close: async () => server.forceShutdown(),
  };
}

const hostGone = "the host is gone";

async function bind(server: grpc.Server, listen: string, credentials: grpc.ServerCredentials): Promise<string> {
  if (!isUnix(listen)) {
    const port = await bound(server, listen, credentials);
    return listen.replace(/:0$/, `:${port}`);
  }
  const path = listen.slice("unix:".length);
  if (!isAbsolute(path)) throw new Error(`the socket path '${path}' must be absolute`);
  if (await isLeftBehind(path)) rmSync(path);
  const before = process.umask(0o077); // the socket is the user's alone
  try {
    await bound(server, listen, credentials);
  } finally {
    process.umask(before);
  }
  return listen;
}

function bound(server: grpc.Server, listen: string, credentials: grpc.ServerCredentials): Promise<number> {
  return new Promise((resolve, reject) => {
    server.bindAsync(listen, credentials, (error, port) => (error ? reject(error) : resolve(port)));
  });
}

/** Whether a socket is that of a process which was killed: one that lives answers. */
function isLeftBehind(path: string): Promise<boolean> {
  return new Promise((resolve) => {
    const attempt = connect(path);
    attempt.on("connect", () => resolve(!attempt.destroy()));
    attempt.on("error", (error: NodeJS.ErrnoException) => resolve(error.code === "ECONNREFUSED"));
  });
}

async function within(milliseconds: number, work: Promise<void>): Promise<void> {
  const late = new AbortController();
  await Promise.race([work, sleep(milliseconds, undefined, { signal: late.signal }).catch(() => {})]);
  late.abort();
}

/** Resolves at a signal; the next one ends the process at once, as it would without this. */
function told(signal: NodeJS.Signals): Promise<string> {
  return new Promise((resolve) => process.once(signal, () => resolve(signal)));
}

/** Resolves when the process that started this one has ended. */
function parentGone(parent: number): Promise<string> {
  return new Promise((resolve) => {
    const look = setInterval(() => {
      if (process.ppid === parent) return;
      clearInterval(look);
      resolve(hostGone);
    }, parentLookMs);
    look.unref();
  });
}
