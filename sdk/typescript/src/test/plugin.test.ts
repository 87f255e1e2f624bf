import assert from "node:assert/strict";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";

import { type Runner, delta, readPlugin } from "../index.js";

const runner: Runner = async function* () {
  yield delta("x");
};
const head = "apiVersion: runmesh/v1\nkind: Plugin\nmetadata: { author: acme, name: desk, version: 1.2.0 }\n";
const component = `apiVersion: runmesh/v1
kind: AgentRunner
metadata:
  name: one
  label: One
  description: { en_US: The first, zh_Hans: 第一 }
  notes: { conformance.echo: "true" }
capabilities: { streaming: true, event_context: false }
permissions: { models: [invoke, stream], tools: [call], storage: [plugin], platform_actions: [message.send] }
config_schema:
  - name: size
    type: integer
    label: { en_US: Size }
    default: { a: [1, null] }
    bounds: { min: 1, max_length: 7 }
    shown_when: { field: kind, equals: true }
`;

function reading(files: Record<string, string>, runners: Record<string, Runner> = { one: runner }) {
  const folder = mkdtempSync(join(tmpdir(), "runmesh-sdk-"));
  try {
    for (const [name, text] of Object.entries(files)) writeFileSync(join(folder, name), text);
    return readPlugin(folder, runners);
  } finally {
    rmSync(folder, { recursive: true });
  }
}

test("a manifest in YAML becomes the contract's", () => {
  const plugin = reading({
    "manifest.yaml": `${head}components: [one.yaml, other.yaml]`,
    "one.yaml": component,
    "other.yaml": "kind: Other",
  });
  assert.equal(plugin.id, "acme/desk");
  const { manifest } = plugin.served.get("plugin:acme/desk/one") ?? assert.fail();
  assert.deepEqual([manifest.name, manifest.version, manifest.protocolVersion], ["one", "1.2.0", "1"]);
  assert.deepEqual(manifest.label?.text, { en_US: "One" });
  assert.equal(manifest.description?.text["zh_Hans"], "第一");
  assert.deepEqual(manifest.metadata, { "conformance.echo": "true" });
  assert.equal(manifest.capabilities?.eventContext, false);
  assert.deepEqual(manifest.permissions?.models, [1, 2]);
  assert.deepEqual(manifest.permissions?.platformActions, ["message.send"]);
  const [field] = manifest.configSchema;
  assert.equal(field?.defaultJson, '{"a":[1,null]}');
  assert.deepEqual([field?.bounds?.min, field?.bounds?.maxLength, field?.shownWhen?.equalsJson], [1, 7n, "true"]);
});

test("what a manifest has wrong is told with its file", () => {
  const files = { "manifest.yaml": `${head}components: [one.yaml]`, "one.yaml": component };
  const wrong = (changed: Record<string, string>, told: RegExp, runners?: Record<string, Runner>) =>
    assert.throws(() => reading({ ...files, ...changed }, runners), told);
  wrong({ "manifest.yaml": "kind: Plugin" }, /manifest.yaml: must be of apiVersion/);
  wrong({ "manifest.yaml": head.replace("acme", "Acme") }, /author and name/);
  wrong({ "manifest.yaml": `${head}components: [two.yaml]` }, /two.yaml/);
  wrong({ "one.yaml": component.replace("streaming", "steaming") }, /one.yaml: .*steaming/);
  wrong({ "one.yaml": component.replace("invoke", "invoice") }, /one.yaml: .*INVOICE/);
  wrong({ "one.yaml": "a: [" }, /one.yaml/);
  wrong({}, /exactly one runner/, {});
  wrong({}, /no manifest describes the runner 'two'/, { one: runner, two: runner });
});
