"""A farcall client over TCP, written from the chapter protocol.md alone: unary calls and server streams.

    python3 client.py HOST:PORT

It needs Python 3.8 and nothing else. The server has to serve gRPC's interoperability service
`grpc.testing.TestService`, whose few messages are encoded by hand below. Prints "ok NAME" or
"FAILED NAME: why" for each case, and "done" at its end.
"""

import itertools
import socket
import struct
import sys

MAGIC = b"farcall\n"
HELLO_PREFIX = struct.Struct("<8sHHI")  # magic, oldest and newest version, length of the body
RECORD = struct.Struct("<BBHII")  # kind, wants an ack, zero, length, transfer
FRAME = struct.Struct("<BBHIQQQ")  # kind, flags, selector, metadata_len, call, argument, message_len
SINGLE, FIRST, NEXT, ACK = 1, 2, 3, 4
REQUEST, RESPONSE, CANCEL, HEADERS, MESSAGES, HALF_CLOSE, WINDOW, PING, PONG, GO_AWAY = range(1, 11)
SINGLE_LEN_MAX = 64 << 10
CHUNK_LEN = 256 << 10
WINDOW_MESSAGES, WINDOW_BYTES = 8, 64 << 10
MESSAGE_LEN_MAX, METADATA_LEN_MAX = 4 << 20, 16 << 10


class CallError(Exception):
    """A call that ended with a status other than OK."""

    def __init__(self, code, message):
        super().__init__(f"status {code}: {message}")
        self.code, self.message = code, message


# Protobuf, as far as it is needed here.

def varint(value):
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def field(number, value):
    """An integer or a length-delimited field."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    return varint(number << 3 | 2) + varint(len(value)) + value


def fields(body):
    """Yields the number and the value of each field."""
    at = 0

    def take_varint():
        nonlocal at
        value = 0
        for shift in itertools.count(0, 7):
            value |= (body[at] & 0x7F) << shift
            at += 1
            if body[at - 1] < 0x80:
                return value

    while at < len(body):
        key = take_varint()
        if key & 7 == 0:
            yield key >> 3, take_varint()
        elif key & 7 == 2:
            length = take_varint()
            at += length
            yield key >> 3, body[at - length : at]
        else:
            at += {1: 8, 5: 4}[key & 7]


# Metadata.

def encode_metadata(entries):
    parts = (struct.pack("<HI", len(key), len(value)) + key + value for key, value in entries)
    return b"".join(parts)


def decode_metadata(block):
    entries = []
    while block:
        key_len, value_len = struct.unpack_from("<HI", block)
        entries.append((block[6 : 6 + key_len], block[6 + key_len : 6 + key_len + value_len]))
        block = block[6 + key_len + value_len :]
    return entries


def decode_outcome(block):
    """Initial metadata, trailing metadata, the status message, and the details."""
    parts = []
    for _ in range(3 if block else 0):
        (length,) = struct.unpack_from("<I", block)
        parts.append(block[4 : 4 + length])
        block = block[4 + length :]
    first, trailers, message = parts or (b"", b"", b"")
    return decode_metadata(first), decode_metadata(trailers), message.decode(), block


class Connection:
    """A connection that makes one call at a time."""

    def __init__(self, host, port):
        self.stream = socket.create_connection((host, port), timeout=20)
        self.transfers = {}
        self.chunk_bytes_read = 0
        self.call_ids = itertools.count(1)
        self.is_going_away = False
        hello = b"".join(
            field(number, value)
            for number, value in (
                (1, MESSAGE_LEN_MAX),
                (2, METADATA_LEN_MAX),
                (8, MESSAGE_LEN_MAX),
                (9, WINDOW_MESSAGES),
                (10, WINDOW_BYTES),
            )
        )
        self.stream.sendall(HELLO_PREFIX.pack(MAGIC, 1, 1, len(hello)) + hello)
        magic, oldest, newest, length = HELLO_PREFIX.unpack(self.read(HELLO_PREFIX.size))
        assert magic == MAGIC and oldest <= 1 <= newest and length <= 1 << 20, "no farcall server"
        answer = list(fields(self.read(length)))
        self.methods = [value.decode() for number, value in answer if number == 4]

    def read(self, length):
        out = bytearray()
        while len(out) < length:
            part = self.stream.recv(length - len(out))
            if not part:
                raise EOFError("the server has closed the connection")
            out += part
        return bytes(out)

    def send(self, kind, call, argument=0, flags=0, selector=0, metadata=b"", message=b""):
        header = FRAME.pack(kind, flags, selector, len(metadata), call, argument, len(message))
        frame = header + metadata + message
        if len(frame) <= SINGLE_LEN_MAX:
            self.stream.sendall(RECORD.pack(SINGLE, 0, 0, len(frame), 0) + frame)
            return
        chunks = [frame[at : at + CHUNK_LEN] for at in range(0, len(frame), CHUNK_LEN)]
        first = struct.pack("<Q", len(frame)) + chunks[0]
        self.stream.sendall(RECORD.pack(FIRST, 0, 0, len(first), 7) + first)
        for chunk in chunks[1:]:
            self.stream.sendall(RECORD.pack(NEXT, 0, 0, len(chunk), 7) + chunk)

    def receive_frame(self):
        """Waits for a frame that is whole."""
        while True:
            kind, wants_ack, _, length, transfer = RECORD.unpack(self.read(RECORD.size))
            body = self.read(length)
            if kind == SINGLE:
                return body
            if kind == ACK:
                continue
            if kind == FIRST:
                (frame_len,) = struct.unpack_from("<Q", body)
                body = body[8:]
                self.transfers[transfer] = (frame_len, bytearray())
            frame_len, frame = self.transfers[transfer]
            frame += body
            self.chunk_bytes_read += len(body)
            if wants_ack:
                count = struct.pack("<Q", self.chunk_bytes_read)
                self.stream.sendall(RECORD.pack(ACK, 0, 0, 8, 0) + count)
            if len(frame) == frame_len:
                del self.transfers[transfer]
                return bytes(frame)

    def receive(self, call):
        """Waits for a frame of the call. Answers pings meanwhile."""
        while True:
            frame = self.receive_frame()
            kind, flags, selector, metadata_len, of, argument, message_len = FRAME.unpack_from(frame)
            assert len(frame) == FRAME.size + metadata_len + message_len, "a frame of another length"
            metadata = frame[FRAME.size : FRAME.size + metadata_len]
            message = frame[FRAME.size + metadata_len :]
            if kind == PING:
                self.send(PONG, 0, argument)
            elif kind == GO_AWAY:
                self.is_going_away = True
            elif of == call and kind in (RESPONSE, HEADERS, MESSAGES):
                assert not flags & 4, "compression was not agreed on"
                return kind, selector, argument, metadata, message

    def start(self, path, message, metadata, timeout):
        assert not self.is_going_away, "the server takes no more calls on this connection"
        call, timeout_us = next(self.call_ids), int(timeout * 1e6)
        selector, block = self.methods.index(path), encode_metadata(metadata)
        self.send(REQUEST, call, timeout_us, 0, selector, block, message)
        return call

    def unary(self, path, message, metadata=(), timeout=10):
        """Returns the reply, the initial metadata and the trailing metadata."""
        call = self.start(path, message, metadata, timeout)
        kind, code, _, block, reply = self.receive(call)
        assert kind == RESPONSE, "a stream in place of one message"
        first, trailers, text, _ = decode_outcome(block)
        if code:
            raise CallError(code, text)
        return reply, first, trailers

    def server_stream(self, path, message, metadata=(), timeout=10):
        """Yields the messages of the reply."""
        call = self.start(path, message, metadata, timeout)
        ahead, place = {}, 0
        granted_messages, granted_bytes = WINDOW_MESSAGES, WINDOW_BYTES
        read_messages = read_bytes = 0
        while True:
            while place not in ahead:
                kind, code, argument, block, body = self.receive(call)
                ahead[argument] = (kind, code, block, body)
            kind, code, block, body = ahead.pop(place)
            place += 1
            if kind == RESPONSE:
                if code:
                    raise CallError(code, decode_outcome(block)[2])
                return
            while kind == MESSAGES and body:
                (length,) = struct.unpack_from("<I", body)
                yield body[4 : 4 + length]
                body = body[4 + length :]
                read_messages, read_bytes = read_messages + 1, read_bytes + length
                is_due = granted_messages - read_messages <= WINDOW_MESSAGES // 2
                if is_due or granted_bytes - read_bytes <= WINDOW_BYTES // 2:
                    granted_messages = read_messages + WINDOW_MESSAGES
                    granted_bytes = read_bytes + WINDOW_BYTES
                    counts = granted_messages % 2**32 << 32 | granted_bytes % 2**32
                    self.send(WINDOW, call, counts)


# The cases, against gRPC's interoperability service.

SERVICE = "/grpc.testing.TestService/"
ECHO_INITIAL, ECHO_TRAILING = b"x-grpc-test-echo-initial", b"x-grpc-test-echo-trailing-bin"


def simple_request(length, payload=b"", status=None):
    request = field(2, length) + field(3, field(2, payload))
    return request + (field(7, field(1, status[0]) + field(2, status[1])) if status else b"")


def payload_len(reply):
    payloads = [value for number, value in fields(reply) if number in (1, 3)]
    return sum(len(value) for payload in payloads for number, value in fields(payload) if number == 2)


def unary(connection):
    reply, _, _ = connection.unary(SERVICE + "UnaryCall", simple_request(314))
    assert payload_len(reply) == 314


def large_messages(connection):
    request = simple_request(3 << 20, bytes(2 << 20))
    reply, _, _ = connection.unary(SERVICE + "UnaryCall", request)
    assert payload_len(reply) == 3 << 20


def metadata(connection):
    sent = [(ECHO_INITIAL, b"one"), (ECHO_TRAILING, b"\xab\xab\x00")]
    _, first, trailers = connection.unary(SERVICE + "UnaryCall", simple_request(1), sent)
    assert sent[0] in first and sent[1] in trailers, (first, trailers)


def status(connection):
    try:
        connection.unary(SERVICE + "UnaryCall", simple_request(1, status=(9, "não\n".encode())))
    except CallError as error:
        assert (error.code, error.message) == (9, "não\n"), error
    else:
        assert False, "the call has not failed"


def server_stream(connection):
    # 400 messages cross the window of messages, and the long ones that of bytes.
    lens = [1, 0, 100_000, 70_000, 9] + [500] * 395
    request = b"".join(field(2, field(1, length)) for length in lens)
    replies = connection.server_stream(SERVICE + "StreamingOutputCall", request)
    assert [payload_len(reply) for reply in replies] == lens


def main():
    host, _, port = sys.argv[1].rpartition(":")
    connection = Connection(host.strip("[]"), int(port))
    for case in (unary, large_messages, metadata, status, server_stream, unary):
        try:
            case(connection)
            print(f"ok {case.__name__}", flush=True)
        except Exception as error:  # pylint: disable=broad-except
            print(f"FAILED {case.__name__}: {error!r}", flush=True)
    print("done", flush=True)


if __name__ == "__main__":
    main()
