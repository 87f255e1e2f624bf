"""Dispatches a message to an agent, and prints what its run says as it comes.

RUNMESH_API_KEY=... python client.py 127.0.0.1:7443 AGENT TEXT
"""

import os
import sys

import grpc
from runmesh.v1 import event_pb2, gateway_pb2, gateway_pb2_grpc

if len(sys.argv) != 4:
    sys.exit("usage: client.py ADDRESS AGENT TEXT")
_, address, agent, text = sys.argv
key = [("authorization", f"Bearer {os.environ.get('RUNMESH_API_KEY', '')}")]
with grpc.insecure_channel(address) as channel:
    event = event_pb2.EventEnvelope(type="message.received", input=event_pb2.EventInput(text=text))
    request = gateway_pb2.DispatchRequest(event=event, agent_id=agent)
    for response in gateway_pb2_grpc.GatewayServiceStub(channel).Dispatch(request, metadata=key):
        for result in response.results.results:
            print(result.message_delta.text, end="", flush=True)
        if response.HasField("ended"):
            print(f"\n{response.ended.run_id} {gateway_pb2.RunStatus.Name(response.ended.status)}")
