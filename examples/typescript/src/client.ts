/**
 * Dispatches a message to an agent, and prints what its run says as it comes:
 *
 *     RUNMESH_API_KEY=... node dist/client.js ADDRESS AGENT TEXT
 */
import { connect } from "@runmesh/sdk";
import { GatewayService, RunStatus } from "@runmesh/sdk/v1";

const [address = "", agentId = "", text = ""] = process.argv.slice(2);
const metadata = { authorization: `Bearer ${process.env["RUNMESH_API_KEY"] ?? ""}` };
const gateway = connect(GatewayService, address, { metadata });
for await (const { item } of gateway.dispatch({ event: { type: "message.received", input: { text } }, agentId })) {
  const results = item.case === "results" ? item.value.results : [];
  for (const { payload } of results) {
    if (payload.case === "messageDelta") process.stdout.write(payload.value.text);
  }
  if (item.case === "ended") console.log(`\n${item.value.runId} ${RunStatus[item.value.status]}`);
}
