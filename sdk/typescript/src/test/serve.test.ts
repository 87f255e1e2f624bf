import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { chmodSync, mkdtempSync, rmSync, statSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { after, test } from "node:test";

import { Health } from "../gen/grpc/health/v1/health_pb.js";
import { type Plugin, HostError, connect, definePlugin, delta, start } from "../index.js";
import { tlsFromEnvironment } from "../tls.js";
import { DiscoveryService } from "../v1.js";

const folder = mkdtempSync(join(tmpdir(), "runmesh-sdk-"));
after(() => rmSync(folder, { recursive: true }));

const manifest = { name: "one", label: { text: { en_US: "One" } } };
const plugin: Plugin = definePlugin({ author: "acme", name: "test", version: "1" }, [manifest], {
  one: async function* () {
    yield delta("x");
  },
});

test("a unix socket is its user's alone, and one that lives is not taken over", async () => {
  const path = join(folder, "plugin.sock");
  const serving = await start(plugin, { listen: `unix:${path}`, tls: undefined });
  assert.equal(statSync(path).mode & 0o077, 0);
  const { pluginId, protocolVersion } = await connect(DiscoveryService, `unix:${path}`).handshake({
    hostId: "h",
    protocolVersions: ["7", "1"],
  });
  assert.deepEqual([pluginId, protocolVersion], ["acme/test", "1"]);
  await assert.rejects(start(plugin, { listen: `unix:${path}`, tls: undefined }), /EADDRINUSE|in use/);
  await serving.close();
});

test("health tells of draining", async () => {
  const serving = await start(plugin, { listen: "127.0.0.1:0", tls: undefined });
  const health = connect(Health, serving.address);
  assert.equal((await health.check({ service: "runmesh.v1.RunService" })).status, 1);
  await assert.rejects(health.check({ service: "nothing" }), (error: HostError) => error.reason === "NOT_FOUND");
  const statuses: number[] = [];
  const watching = (async () => {
    for await (const { status } of health.watch({ service: "" })) {
      statuses.push(status);
      if (status === 1) void serving.close(1_000);
      else break;
    }
  })();
  await watching;
  assert.deepEqual(statuses, [1, 2]);
});

test("nothing is served to a network without TLS", async () => {
  await assert.rejects(start(plugin, { listen: "0.0.0.0:0", tls: undefined }), /without TLS/);
  await assert.rejects(start(plugin, { listen: "unix:relative.sock", tls: undefined }), /absolute/);
});

test("TLS is what its variables say", async (context) => {
  const [certificate, key] = [join(folder, "cert.pem"), join(folder, "key.pem")];
  const make = () =>
    execFileSync("openssl", [...request, ...names, "-out", certificate, "-keyout", key], { stdio: "ignore" });
  const request = ["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"];
  const names = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"];
  make();
  chmodSync(key, 0o644);
  const environment = {
    RUNMESH_TLS_CERT: certificate,
    RUNMESH_TLS_KEY: key,
    RUNMESH_TLS_CLIENT_CA: certificate,
    RUNMESH_TLS_HOST_CA: certificate,
  };
  const tls = tlsFromEnvironment(environment);
  assert.ok(tls);
  assert.equal(tlsFromEnvironment({}), undefined);
  await assert.rejects(start(plugin, { tls }), /chmod 600/);
  chmodSync(key, 0o600);
  await assert.rejects(start(plugin, { tls: { certificate } }), /go together/);
  writeFileSync(join(folder, "bad.pem"), "no certificate");
  await assert.rejects(start(plugin, { tls: { hostCa: join(folder, "gone.pem") } }), /ENOENT/);
  const serving = await start(plugin, { listen: "localhost:0", tls });
  context.after(() => serving.close());
  const shaken = (options: object) =>
    connect(DiscoveryService, serving.address, options).handshake({ hostId: "h" }, { timeoutMs: 10_000 });
  assert.equal((await shaken({ tls })).pluginId, "acme/test");
  await assert.rejects(shaken({ tls: { hostCa: certificate } }), "a caller without a certificate");
  await assert.rejects(shaken({}), "a caller without TLS");
  make();
  chmodSync(key, 0o600);
  let isRenewed = false;
  for (let attempt = 0; attempt < 20 && !isRenewed; attempt++) {
    await sleep(300);
    isRenewed = await shaken({ tls }).then(
      () => true,
      () => false,
    );
  }
  assert.ok(isRenewed, "the new certificate is shown");
});
