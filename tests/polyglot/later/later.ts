/** A runner of a later version: it says and asks what today's hosts do not know. */
import { create } from "@bufbuild/protobuf";
import { HostError, type Result, type Run, log, readPlugin, reply, serve } from "@runmesh/sdk";
import { ChatRole, LaterThingSchema, LogLevel, RunResultSchema, StateScope } from "@runmesh/sdk/v1";

const laterText = "of a later version";
const laterThing = create(LaterThingSchema, { laterNumber: 7n });

async function* later({ text, host }: Run): AsyncGenerator<Result> {
  switch (text) {
    case "result":
    case "must understand":
      yield reply("before");
      yield create(RunResultSchema, {
        mustUnderstand: text === "must understand",
        payload: { case: "laterResult", value: laterThing },
      });
      yield reply("after");
      return;
    case "values": {
      const parts = [
        { content: { case: "text" as const, value: "hello" } },
        { content: { case: "laterContent" as const, value: laterThing } },
      ];
      const message = { role: ChatRole.LATER, parts, laterText, laterThing };
      const value = { message, laterText, laterThing };
      yield create(RunResultSchema, { payload: { case: "messageCompleted", value } });
      yield log("a line", LogLevel.LATER);
      return;
    }
    case "call":
      try {
        await host.foretell({ laterText });
      } catch (error) {
        if (!(error instanceof HostError)) throw error;
        yield reply(`${error.method}: ${error.reason}`);
      }
      return;
    case "fields": {
      const place = { scope: StateScope.CONVERSATION, key: "later", laterText };
      await host.setState({ ...place, valueJson: '"kept"', laterThing });
      const { entry } = await host.getState(place);
      yield reply(`${entry?.valueJson}${entry?.laterText}`);
    }
  }
}

await serve(readPlugin(new URL("..", import.meta.url), { later }));
