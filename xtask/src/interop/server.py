"""grpcio's server with default options, for clients of farcall: the service of gRPC's interoperability tests.

The messages come from the descriptors in the folder that is the only argument, and its certificate
too. Prints the server's places, without TLS, with it, and the path of a Unix socket, and ends with
its input.
"""

import pathlib
import sys
from concurrent import futures

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from grpc_reflection.v1alpha import reflection

NAME = "grpc.testing.TestService"
INITIAL = "x-grpc-test-echo-initial"
TRAILING = "x-grpc-test-echo-trailing-bin"
CODES = {code.value[0]: code for code in grpc.StatusCode}


class Handlers(grpc.GenericRpcHandler):
    def __init__(self, folder):
        self.pool = descriptor_pool.DescriptorPool()
        read = (pathlib.Path(folder) / "descriptors.bin").read_bytes()
        for file in descriptor_pb2.FileDescriptorSet.FromString(read).file:
            self.pool.Add(file)
        self.methods = {
            "EmptyCall": (grpc.unary_unary_rpc_method_handler, self.empty_call),
            "UnaryCall": (grpc.unary_unary_rpc_method_handler, self.unary_call),
            "StreamingOutputCall": (grpc.unary_stream_rpc_method_handler, self.output_call),
            "StreamingInputCall": (grpc.stream_unary_rpc_method_handler, self.input_call),
            "FullDuplexCall": (grpc.stream_stream_rpc_method_handler, self.duplex_call),
        }

    def msg(self, name, **fields):
        descriptor = self.pool.FindMessageTypeByName("grpc.testing." + name)
        return message_factory.GetMessageClass(descriptor)(**fields)

    def service(self, details):
        service, _, name = details.method.lstrip("/").partition("/")
        if service != NAME or name not in self.methods:
            return None
        make, handle = self.methods[name]
        method = self.pool.FindServiceByName(NAME).FindMethodByName(name)
        request = message_factory.GetMessageClass(method.input_type)
        return make(
            handle,
            request_deserializer=request.FromString,
            response_serializer=lambda message: message.SerializeToString(),
        )

    def echo(self, context):
        sent = dict(context.invocation_metadata())
        if INITIAL in sent:
            context.send_initial_metadata(((INITIAL, sent[INITIAL]),))
        if TRAILING in sent:
            context.set_trailing_metadata(((TRAILING, sent[TRAILING]),))

    def refuse(self, request, context):
        status = request.response_status
        if status.code:
            context.abort(CODES[status.code], status.message)

    def payload(self, length):
        return self.msg("Payload", body=bytes(length))

    def empty_call(self, request, context):
        return request

    def unary_call(self, request, context):
        self.echo(context)
        self.refuse(request, context)
        return self.msg("SimpleResponse", payload=self.payload(request.response_size))

    def output_call(self, request, context):
        self.refuse(request, context)
        for parameters in request.response_parameters:
            payload = self.payload(parameters.size)
            yield self.msg("StreamingOutputCallResponse", payload=payload)

    def input_call(self, requests, context):
        size = sum(len(request.payload.body) for request in requests)
        return self.msg("StreamingInputCallResponse", aggregated_payload_size=size)

    def duplex_call(self, requests, context):
        self.echo(context)
        for request in requests:
            yield from self.output_call(request, context)


def main(folder):
    server = grpc.server(futures.ThreadPoolExecutor(max_workers=16))
    handlers = Handlers(folder)
    server.add_generic_rpc_handlers((handlers,))
    reflection.enable_server_reflection((NAME, reflection.SERVICE_NAME), server, handlers.pool)
    read = lambda name: (pathlib.Path(folder) / name).read_bytes()  # noqa: E731
    credentials = grpc.ssl_server_credentials([(read("server.key"), read("server.pem"))])
    port = server.add_insecure_port("127.0.0.1:0")
    tls_port = server.add_secure_port("127.0.0.1:0", credentials)
    socket = pathlib.Path(folder) / "grpcio.sock"
    socket.unlink(missing_ok=True)
    server.add_insecure_port(f"unix:{socket}")
    server.start()
    print(f"127.0.0.1:{port}\n127.0.0.1:{tls_port}\n{socket}", flush=True)
    sys.stdin.read()
    server.stop(None)


if __name__ == "__main__":
    main(*sys.argv[1:])
