"""Dispatches a message to an agent, and prints what its run says as it comes.

RUNMESH_API_KEY=... python client.py 127.0.0.1:7443 AGENT TEXT
"""

import asyncio
import os
import sys

import grpc.aio
from runmesh.v1 import event_pb2, gateway_pb2, gateway_pb2_grpc


async def ask(address: str, agent: str, text: str) -> None:
    """Dispatches one message and follows its run to the end."""
    key = (("authorization", f"Bearer {os.environ.get('RUNMESH_API_KEY', '')}"),)
    event = event_pb2.EventEnvelope(type="message.received", input=event_pb2.EventInput(text=text))
    request = gateway_pb2.DispatchRequest(event=event, agent_id=agent)
    async with grpc.aio.insecure_channel(address) as channel:
        gateway = gateway_pb2_grpc.GatewayServiceStub(channel)
        streamed = False
        async for response in gateway.Dispatch(request, metadata=key):
            for result in response.results.results:
                streamed = streamed or result.HasField("message_delta")
                print(result.message_delta.text, end="", flush=True)
                whole = [part.text for part in result.message_completed.message.parts]
                print("" if streamed else "".join(whole), end="", flush=True)
            if response.HasField("ended"):
                status = gateway_pb2.RunStatus.Name(response.ended.status)
                print(f"\n{response.ended.run_id} {status}")


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit("usage: client.py ADDRESS AGENT TEXT")
    asyncio.run(ask(*sys.argv[1:]))
