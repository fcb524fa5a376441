"""A client that begins a trace: calls Health/Check of the server at the first argument, once for each
further argument, a service and the flags of its trace as "serving:01". The environment names the trace.

Prints the code of each call.
"""

import os
import sys

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

LIMIT = 30

with grpc.insecure_channel(sys.argv[1]) as channel:
    health = health_pb2_grpc.HealthStub(channel)
    for call in sys.argv[2:]:
        service, flags = call.split(":")
        parent = f"00-{os.environ['TRACE']}-{os.environ['CALLER']}-{flags}"
        metadata = [("traceparent", parent), ("tracestate", "vendor=1")]
        request = health_pb2.HealthCheckRequest(service=service)
        try:
            health.Check(request, timeout=LIMIT, metadata=metadata, wait_for_ready=True)
            print("OK")
        except grpc.RpcError as error:
            print(error.code().name)
