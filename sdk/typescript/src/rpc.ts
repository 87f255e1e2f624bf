/** Services and clients of protobuf-es on grpc-js: definitions to serve, and clients with promises. */
import { once } from "node:events";

import {
  type DescMessage,
  type DescMethod,
  type DescService,
  type Message,
  type MessageInitShape,
  type MessageShape,
  create,
  fromBinary,
  toBinary,
} from "@bufbuild/protobuf";
import * as grpc from "@grpc/grpc-js";

import { hostError } from "./errors.js";
import { type Tls, hostCredentials } from "./tls.js";

/** The contract's limit of a message; what grpc-js would receive by itself is a quarter of it. */
export const channelOptions: grpc.ChannelOptions = {
  "grpc.max_receive_message_length": 16 * 1024 * 1024,
  "grpc.max_send_message_length": 16 * 1024 * 1024,
};

/** Options of one call. */
export interface CallOptions {
  /** Ends the call; of a call to a run's host, in place of the run's own signal. */
  signal?: AbortSignal;
  timeoutMs?: number;
  metadata?: Record<string, string>;
}

type ClientMethod<M> = M extends {
  methodKind: infer Kind;
  input: infer I extends DescMessage;
  output: infer O extends DescMessage;
}
  ? Kind extends "unary"
    ? (request: MessageInitShape<I>, options?: CallOptions) => Promise<MessageShape<O>>
    : Kind extends "server_streaming"
      ? (request: MessageInitShape<I>, options?: CallOptions) => AsyncGenerator<MessageShape<O>, void>
      : Kind extends "client_streaming"
        ? (requests: AsyncIterable<MessageInitShape<I>>, options?: CallOptions) => Promise<MessageShape<O>>
        : never
  : never;

/** A service's methods; each rejects with a `HostError`, or with its signal's reason. */
export type Client<S extends DescService> = { readonly [K in keyof S["method"]]: ClientMethod<S["method"][K]> };

/** What a call is made with. */
export interface Opened {
  channel: grpc.Client;
  metadata: grpc.Metadata;
  /** Infinity: none. */
  deadline: grpc.Deadline;
  signal?: AbortSignal | undefined;
}

/** Connects to a service of a host, such as `GatewayService`. */
export function connect<S extends DescService>(
  service: S,
  address: string,
  { metadata = {}, tls }: { metadata?: Record<string, string>; tls?: Tls } = {},
): Client<S> {
  const channel = new grpc.Client(address, hostCredentials(address, tls), channelOptions);
  return clientOf(service, (_, options) => ({
    channel,
    metadata: metadataOf({ ...metadata, ...options.metadata }),
    deadline: deadlineAfter(options.timeoutMs),
    signal: options.signal,
  }));
}

/** Makes a client that asks `open` for what each of its calls is made with. */
export function clientOf<S extends DescService>(
  service: S,
  open: (method: DescMethod, options: CallOptions) => Opened,
): Client<S> {
  const methods = service.methods.map((method) => {
    const call = {
      unary,
      server_streaming: serverStreaming,
      client_streaming: clientStreaming,
      bidi_streaming: unserved,
    }[method.methodKind];
    return [
      method.localName,
      (request: never, options: CallOptions = {}) => call(method, request, () => open(method, options)),
    ];
  });
  return Object.fromEntries(methods) as Client<S>;
}

/** A service as grpc-js takes it. */
export function definitionOf(service: DescService): grpc.ServiceDefinition {
  return Object.fromEntries(
    service.methods.map((method) => [
      method.localName,
      {
        path: pathOf(method),
        requestStream: method.methodKind === "client_streaming" || method.methodKind === "bidi_streaming",
        responseStream: method.methodKind === "server_streaming" || method.methodKind === "bidi_streaming",
        requestSerialize: (message: Message) => encoded(method.input, message),
        requestDeserialize: (bytes: Buffer) => fromBinary(method.input, bytes),
        // What was encoded already, to know its size, is sent as it is.
        responseSerialize: (message: Message | Uint8Array) => encoded(method.output, message),
        responseDeserialize: (bytes: Buffer) => fromBinary(method.output, bytes),
      },
    ]),
  );
}

export function metadataOf(entries: Record<string, string>): grpc.Metadata {
  const metadata = new grpc.Metadata();
  for (const [key, value] of Object.entries(entries)) metadata.set(key, value);
  return metadata;
}

/** The time of a timeout; none is Infinity. */
export function deadlineAfter(milliseconds: number | undefined): number {
  return milliseconds === undefined ? Infinity : Date.now() + milliseconds;
}

async function unary(method: DescMethod, request: object, open: () => Opened): Promise<Message> {
  const { channel, metadata, deadline, signal } = open();
  signal?.throwIfAborted();
  const { promise, answered } = answerOf(method, signal);
  const [path, serialize, deserialize] = transportOf(method);
  const call = channel.makeUnaryRequest(path, serialize, deserialize, request, metadata, { deadline }, answered);
  return await during(call, signal, () => promise);
}

async function* serverStreaming(
  method: DescMethod,
  request: object,
  open: () => Opened,
): AsyncGenerator<Message, void> {
  const { channel, metadata, deadline, signal } = open();
  signal?.throwIfAborted();
  const [path, serialize, deserialize] = transportOf(method);
  const call = channel.makeServerStreamRequest(path, serialize, deserialize, request, metadata, { deadline });
  const abort = () => call.cancel();
  signal?.addEventListener("abort", abort);
  try {
    for await (const message of call) yield message as Message;
  } catch (error) {
    signal?.throwIfAborted();
    throw hostError(method.name, error as grpc.ServiceError);
  } finally {
    signal?.removeEventListener("abort", abort);
    call.cancel(); // of no effect but where it was left early
  }
}

/** Opens a call that streams both ways; requests may be encoded already. */
export function openBoth(
  method: DescMethod,
  { channel, metadata, deadline }: Opened,
): grpc.ClientDuplexStream<object, Message> {
  return channel.makeBidiStreamRequest(...transportOf(method), metadata, { deadline });
}

async function clientStreaming(
  method: DescMethod,
  requests: AsyncIterable<object>,
  open: () => Opened,
): Promise<Message> {
  const { channel, metadata, deadline, signal } = open();
  signal?.throwIfAborted();
  const { promise, answered } = answerOf(method, signal);
  const [path, serialize, deserialize] = transportOf(method);
  const call = channel.makeClientStreamRequest(path, serialize, deserialize, metadata, { deadline }, answered);
  let over = false;
  const ended = promise.then(
    () => void (over = true),
    () => void (over = true),
  );
  return await during(call, signal, async () => {
    try {
      for await (const request of requests) {
        if (over) break; // the host has answered already: that tells why
        if (!call.write(request)) await Promise.race([once(call, "drain"), ended]);
      }
    } catch (error) {
      call.cancel();
      throw error;
    }
    call.end();
    return await promise;
  });
}

function unserved(method: DescMethod): never {
  throw new TypeError(`${method.name} streams both ways, which this client does not`);
}

/** The promise of a single answer, and the callback that settles it. */
function answerOf(method: DescMethod, signal: AbortSignal | undefined) {
  let settle: grpc.requestCallback<Message> = () => {};
  const promise = new Promise<Message>((resolve, reject) => {
    settle = (error, answer) => {
      if (signal?.aborted) reject(signal.reason);
      else if (error) reject(hostError(method.name, error));
      else resolve(answer as Message);
    };
  });
  promise.catch(() => {}); // whoever waits for it hears it
  return { promise, answered: ((error, answer) => settle(error, answer)) as grpc.requestCallback<Message> };
}

async function during<T>(call: grpc.Call, signal: AbortSignal | undefined, work: () => Promise<T>): Promise<T> {
  const abort = () => call.cancel();
  signal?.addEventListener("abort", abort);
  try {
    return await work();
  } finally {
    signal?.removeEventListener("abort", abort);
  }
}

function transportOf(method: DescMethod) {
  const serialize = (request: object) =>
    encoded(method.input, request instanceof Uint8Array ? request : create(method.input, request as never));
  const deserialize = (bytes: Buffer): Message => fromBinary(method.output, bytes);
  return [pathOf(method), serialize, deserialize] as const;
}

function pathOf(method: DescMethod): string {
  return `/${method.parent.typeName}/${method.name}`;
}

function encoded(schema: DescMessage, message: Message | Uint8Array): Buffer {
  const bytes = message instanceof Uint8Array ? message : toBinary(schema, message);
  return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
}
