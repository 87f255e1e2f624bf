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
const event = { type: "message.received", input: { text } };
let shown = "";
for await (const { item } of gateway.dispatch({ event, agentId })) {
  for (const { payload } of item.case === "results" ? item.value.results : []) {
    const parts = payload.case === "messageCompleted" && !shown ? (payload.value.message?.parts ?? []) : [];
    const whole = parts.map(({ content }) => (content.case === "text" ? content.value : "")).join("");
    const piece = payload.case === "messageDelta" ? payload.value.text : whole;
    process.stdout.write(piece);
    shown += piece;
  }
  if (item.case === "ended") console.log(`\n${item.value.runId} ${RunStatus[item.value.status]}`);
}
