"""Python's gRPC against the port of a farcall server: without TLS ("plain"), with it ("tls"), and with
certificates of both sides ("mutual"). The fourth argument is a number of calls that are made at once,
and further ones are cases to leave out.

The messages come from the server's own reflection service, so that nothing is generated here. Prints
a line for each case, "ok NAME" or "FAILED NAME: why", and "done" at its end.
"""

import contextlib
import pathlib
import sys
import threading

import grpc
from google.protobuf import descriptor_pool, message_factory
from grpc_channelz.v1 import channelz_pb2, channelz_pb2_grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import (
    ProtoReflectionDescriptorDatabase,
)
from grpc_status import rpc_status

LIMIT = 20
# Long enough that the call reaches its handler on a machine with other work.
DEADLINE = 1
REQUEST_LENS = (27182, 8, 1828, 45904)
RESPONSE_LENS = (31415, 9, 2653, 58979)
SPECIAL = "\t\n blanks, a line\r\nand 100 %41: \u263a \u00df \u65e5\u672c \U0001f608\t\n"
# The server's limit on messages is 16 MiB. The client's own are above it.
OPTIONS = [
    ("grpc.max_receive_message_length", 32 << 20),
    ("grpc.max_send_message_length", 32 << 20),
]


class Service:
    """The methods of a service, by the descriptors that the server tells."""

    def __init__(self, channel, pool, name):
        self.channel, self.pool, self.name = channel, pool, name

    def message(self, name, **fields):
        descriptor = self.pool.FindMessageTypeByName(name)
        return message_factory.GetMessageClass(descriptor)(**fields)

    def __getattr__(self, name):
        method = self.pool.FindServiceByName(self.name).FindMethodByName(name)
        kinds = {
            (False, False): self.channel.unary_unary,
            (False, True): self.channel.unary_stream,
            (True, False): self.channel.stream_unary,
            (True, True): self.channel.stream_stream,
        }
        answer = message_factory.GetMessageClass(method.output_type)
        make = kinds[(method.client_streaming, method.server_streaming)]
        return make(
            f"/{self.name}/{name}",
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=answer.FromString,
        )


class Cases:
    def __init__(self, target, security, channel, calls):
        self.target, self.channel, self.calls = target, channel, calls
        self.security = security
        pool = descriptor_pool.DescriptorPool(ProtoReflectionDescriptorDatabase(channel))
        self.test = Service(channel, pool, "grpc.testing.TestService")
        self.probe = Service(channel, pool, "farcall.suite.Probe")
        self.handlers = Service(channel, pool, "farcall.suite.Handlers")

    def msg(self, name, **fields):
        return self.test.message("grpc.testing." + name, **fields)

    def payload(self, length):
        return self.msg("Payload", body=bytes(length))

    def output(self, request_len, response_len):
        parameters = [self.msg("ResponseParameters", size=response_len)]
        payload = self.payload(request_len)
        name = "StreamingOutputCallRequest"
        return self.msg(name, response_parameters=parameters, payload=payload)

    def empty_unary(self):
        assert self.test.EmptyCall(self.msg("Empty"), timeout=LIMIT) == self.msg("Empty")

    def unary(self, request_len, response_len, **options):
        request = self.msg(
            "SimpleRequest", response_size=response_len, payload=self.payload(request_len)
        )
        answer = self.test.UnaryCall(request, timeout=LIMIT, **options)
        assert answer.payload.body == bytes(response_len), len(answer.payload.body)

    def large_unary(self):
        self.unary(271828, 314159)

    def messages_of_5_mib(self):
        self.unary(5 << 20, 5 << 20)

    def gzip(self):
        self.unary(271828, 314159, compression=grpc.Compression.Gzip)

    def gzip_of_a_stream(self):
        asks = (self.output(n, m) for n, m in zip(REQUEST_LENS, RESPONSE_LENS))
        call = self.test.FullDuplexCall(asks, timeout=LIMIT, compression=grpc.Compression.Gzip)
        assert [len(a.payload.body) for a in call] == list(RESPONSE_LENS)

    def client_streaming(self):
        requests = (
            self.msg("StreamingInputCallRequest", payload=self.payload(n)) for n in REQUEST_LENS
        )
        answer = self.test.StreamingInputCall(requests, timeout=LIMIT)
        assert answer.aggregated_payload_size == sum(REQUEST_LENS)

    def server_streaming(self):
        parameters = [self.msg("ResponseParameters", size=n) for n in RESPONSE_LENS]
        request = self.msg("StreamingOutputCallRequest", response_parameters=parameters)
        answers = self.test.StreamingOutputCall(request, timeout=LIMIT)
        assert [len(a.payload.body) for a in answers] == list(RESPONSE_LENS)

    def ping_pong(self):
        turn, asks = threading.Semaphore(1), []

        def requests():
            for request_len, response_len in zip(REQUEST_LENS, RESPONSE_LENS):
                assert turn.acquire(timeout=LIMIT)
                asks.append(response_len)
                yield self.output(request_len, response_len)

        for answer in self.test.FullDuplexCall(requests(), timeout=LIMIT):
            assert len(answer.payload.body) == asks[-1]
            turn.release()
        assert asks == list(RESPONSE_LENS)

    def empty_stream(self):
        assert list(self.test.FullDuplexCall(iter(()), timeout=LIMIT)) == []

    def metadata_both_ways(self):
        sent = (
            ("x-grpc-test-echo-initial", "comes back first"),
            ("x-grpc-test-echo-trailing-bin", b"\xab\x00\xff"),
        )
        request = self.msg("SimpleRequest", response_size=1)
        _, call = self.test.UnaryCall.with_call(request, timeout=LIMIT, metadata=sent)
        assert dict(call.initial_metadata())[sent[0][0]] == sent[0][1]
        assert dict(call.trailing_metadata())[sent[1][0]] == sent[1][1]
        call = self.test.FullDuplexCall(iter([self.output(1, 1)]), timeout=LIMIT, metadata=sent)
        assert len(list(call)) == 1
        assert dict(call.initial_metadata())[sent[0][0]] == sent[0][1]
        assert dict(call.trailing_metadata())[sent[1][0]] == sent[1][1]

    def refused(self, call):
        try:
            call()
        except grpc.RpcError as error:
            return error
        raise AssertionError("the call succeeded")

    def status_of_special_words(self):
        status = self.msg("EchoStatus", code=2, message=SPECIAL)
        request = self.msg("SimpleRequest", response_status=status)
        error = self.refused(lambda: self.test.UnaryCall(request, timeout=LIMIT))
        assert (error.code(), error.details()) == (grpc.StatusCode.UNKNOWN, SPECIAL)

    def rich_errors(self):
        from google.rpc import code_pb2, error_details_pb2, status_pb2

        info = error_details_pb2.ErrorInfo(reason="OUT_OF_STOCK", domain="shop")
        rich = status_pb2.Status(code=code_pb2.FAILED_PRECONDITION, message="none left")
        rich.details.add().Pack(info)
        request = self.probe.message(
            "farcall.suite.FailRequest",
            code=rich.code,
            message=rich.message,
            details=rich.SerializeToString(),
        )
        error = self.refused(lambda: self.probe.Fail(request, timeout=LIMIT))
        assert rpc_status.from_call(error) == rich

    def unimplemented_method(self):
        error = self.refused(
            lambda: self.test.UnimplementedCall(self.msg("Empty"), timeout=LIMIT)
        )
        assert error.code() == grpc.StatusCode.UNIMPLEMENTED

    def unimplemented_service(self):
        call = self.channel.unary_unary("/no.Such/Method")
        error = self.refused(lambda: call(b"", timeout=LIMIT))
        assert error.code() == grpc.StatusCode.UNIMPLEMENTED

    @contextlib.contextmanager
    def watch(self):
        """What becomes of the handlers of the calls that are made from here on."""
        request = self.handlers.message("farcall.suite.WatchRequest")
        events = self.handlers.Watch(request, timeout=LIMIT)
        try:
            self.seen(events, "watching")
            yield events
        finally:
            # The server has one watch at a time.
            events.cancel()

    def seen(self, events, what):
        event = next(events)
        assert event.what == what, event

    def deadline(self):
        """The server knows the deadline, and the handler is dropped behind it."""
        request = self.probe.message("farcall.suite.RemainingRequest")
        remaining = self.probe.Remaining(request, timeout=LIMIT)
        assert remaining.HasField("remaining_us")
        assert 0 < remaining.remaining_us < 2 * LIMIT * 1_000_000, remaining
        held = threading.Event()

        def requests():
            yield self.output(27182, 31415)
            held.wait(LIMIT)

        with self.watch() as events:
            call = self.test.FullDuplexCall(requests(), timeout=DEADLINE)
            error = self.refused(lambda: list(call))
            assert error.code() == grpc.StatusCode.DEADLINE_EXCEEDED
            self.seen(events, "entered")
            self.seen(events, "dropped")
        held.set()

    def cancel_after_begin(self):
        held = threading.Event()

        def requests():
            held.wait(LIMIT)
            return
            yield

        with self.watch() as events:
            call = self.test.StreamingInputCall.future(requests())
            self.seen(events, "entered")
            call.cancel()
            assert call.cancelled()
            self.seen(events, "dropped")
        held.set()
        self.empty_unary()

    def cancel_after_first_response(self):
        held = threading.Event()

        def requests():
            yield self.output(27182, 31415)
            held.wait(LIMIT)

        with self.watch() as events:
            call = self.test.FullDuplexCall(requests(), timeout=LIMIT)
            assert len(next(call).payload.body) == 31415
            self.seen(events, "entered")
            call.cancel()
            self.seen(events, "dropped")
        held.set()
        error = self.refused(lambda: list(call))
        assert error.code() == grpc.StatusCode.CANCELLED
        self.empty_unary()

    def too_long_a_message(self):
        error = self.refused(lambda: self.unary(17 << 20, 1))
        assert error.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
        # The server's words, and not the client's.
        assert "limits.max_message_len" in error.details(), error.details()

    def calls_at_once(self):
        request = self.msg("SimpleRequest", response_size=1000, payload=self.payload(1000))
        method, limit = self.test.UnaryCall, 10 * LIMIT
        calls = [method.future(request, timeout=limit) for _ in range(self.calls)]
        failed = [error for error in (call.exception() for call in calls) if error]
        assert not failed, f"{len(failed)} of {self.calls} failed: {failed[0]}"
        assert all(len(call.result().payload.body) == 1000 for call in calls)
        print(f"{self.calls} calls at once: 0 failed", flush=True)

    def health_check(self):
        stub = health_pb2_grpc.HealthStub(self.channel)
        answer = stub.Check(health_pb2.HealthCheckRequest(), timeout=LIMIT)
        assert answer.status == health_pb2.HealthCheckResponse.SERVING

    def health_watch(self):
        stub = health_pb2_grpc.HealthStub(self.channel)
        watch = stub.Watch(health_pb2.HealthCheckRequest(), timeout=LIMIT)
        assert next(watch).status == health_pb2.HealthCheckResponse.SERVING
        watch.cancel()

    def reflection(self):
        stub = reflection_pb2_grpc.ServerReflectionStub(self.channel)
        ask = reflection_pb2.ServerReflectionRequest(list_services="")
        (answer,) = stub.ServerReflectionInfo(iter([ask]), timeout=LIMIT)
        names = [service.name for service in answer.list_services_response.service]
        assert "grpc.testing.TestService" in names, names

    def channelz(self):
        stub = channelz_pb2_grpc.ChannelzStub(self.channel)

        def server():
            (found,) = stub.GetServers(channelz_pb2.GetServersRequest(), timeout=LIMIT).server
            return found

        before = server()
        self.empty_unary()
        self.unimplemented_method()
        after, asked = server().data, channelz_pb2.GetServerSocketsRequest(max_results=1)
        assert after.calls_succeeded - before.data.calls_succeeded >= 2, after
        assert after.calls_failed > before.data.calls_failed, after
        assert after.calls_started > after.calls_succeeded + after.calls_failed, after
        asked.server_id, sockets = before.ref.server_id, []
        while True:
            page = stub.GetServerSockets(asked, timeout=LIMIT)
            sockets += [ref.socket_id for ref in page.socket_ref]
            asked.start_socket_id = max(sockets) + 1
            if page.end:
                break
        asks = (channelz_pb2.GetSocketRequest(socket_id=number) for number in sockets)
        sockets = [stub.GetSocket(ask, timeout=LIMIT).socket for ask in asks]
        # Others may be those of clients before this one.
        own = max(sockets, key=lambda socket: socket.ref.socket_id)
        assert own.data.streams_started >= 5, own
        assert self.target.startswith("unix:") == own.remote.HasField("uds_address"), own
        options = {option.name: option.value for option in own.data.option}
        assert options["transport"] == "grpc" and int(options["received_bytes"]) > 0, own
        assert own.HasField("security") == (self.security != "plain"), own
        has_certificate = bool(own.security.tls.remote_certificate)
        assert has_certificate == (self.security == "mutual"), own
        with_unknown_id = channelz_pb2.GetSocketRequest(socket_id=-1)
        error = self.refused(lambda: stub.GetSocket(with_unknown_id, timeout=LIMIT))
        assert error.code() == grpc.StatusCode.NOT_FOUND, error

    def channelz_is_hidden(self):
        stub = channelz_pb2_grpc.ChannelzStub(self.channel)
        ask = channelz_pb2.GetServersRequest()
        error = self.refused(lambda: stub.GetServers(ask, timeout=LIMIT))
        assert error.code() == grpc.StatusCode.UNIMPLEMENTED, error


def read(folder, name):
    return (pathlib.Path(folder) / name).read_bytes()


def channel_to(target, security, folder):
    if security == "plain":
        return grpc.insecure_channel(target, options=OPTIONS)
    ca = read(folder, "ca.pem")
    own = (read(folder, "client.key"), read(folder, "client.pem"))
    own = own if security == "mutual" else (None, None)
    return grpc.secure_channel(target, grpc.ssl_channel_credentials(ca, *own), options=OPTIONS)


def is_refused(target, security, folder):
    """A channel with less than the port asks for has no connection."""
    less = {"tls": "plain", "mutual": "tls"}[security]
    with channel_to(target, less, folder) as channel:
        call = channel.unary_unary("/grpc.testing.TestService/EmptyCall")
        try:
            call(b"", timeout=LIMIT)
        except grpc.RpcError as error:
            assert error.code() == grpc.StatusCode.UNAVAILABLE, error
            return
    raise AssertionError("the call succeeded")


def main(target, security, folder, calls, *left_out):
    with channel_to(target, security, folder) as channel:
        grpc.channel_ready_future(channel).result(timeout=LIMIT)
        cases = Cases(target, security, channel, int(calls))
        helpers = {"msg", "payload", "output", "unary", "refused", "watch", "seen", *left_out}
        names = [name for name in vars(Cases) if not name.startswith("_") and name not in helpers]
        all_cases = [(name, getattr(cases, name)) for name in names]
        if security != "plain":
            refused = lambda: is_refused(target, security, folder)  # noqa: E731
            all_cases.append(("a_channel_with_less_security", refused))
        for name, case in all_cases:
            try:
                case()
                print(f"ok {name}", flush=True)
            except Exception as error:  # a case may fail in any way
                words = f"{type(error).__name__}: {error}".replace("\n", " ")
                print(f"FAILED {name}: {words[:300]}", flush=True)
    print("done", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
