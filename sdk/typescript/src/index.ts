/**
 * Runners for runmesh in TypeScript.
 *
 * rpc        services and clients of protobuf-es on grpc-js
 * plugin     what a process serves: its manifests, and the code of each runner
 * run        one execution, and how its results are sent
 * results    what a runner yields
 * host       calls of HostAPIService
 * errors     what goes wrong, in the contract's words
 * service    answers hosts
 * standard   health and reflection
 * serve      listens or attaches, drains, ends with the host
 * attach     dials a host instead of listening for one
 * tls        certificates
 * testing    runs a runner in a test, from `@runmesh/sdk/testing`
 * v1         the contract, from `@runmesh/sdk/v1`
 */
export { type Attach } from "./attach.js";
export { HostError, type Host } from "./host.js";
export { definePlugin, readPlugin, type Plugin, type Runner, type Runners } from "./plugin.js";
export * from "./results.js";
export { type CallOptions, type Client, connect } from "./rpc.js";
export { type Run, RunStopped } from "./run.js";
export { type ServeOptions, serve, type Serving, start } from "./serve.js";
export { version } from "./service.js";
export { type Tls } from "./tls.js";
