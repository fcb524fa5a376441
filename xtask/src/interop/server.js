// grpc-js's server with default options, for clients of farcall: the service of gRPC's interoperability tests. The
// messages come from the descriptors in the folder that is the only argument, and its certificate too. Prints the
// server's places, without TLS, with it, and the path of a Unix socket, and ends with its input.
"use strict";

const fs = require("node:fs");
const path = require("node:path");
const grpc = require("@grpc/grpc-js");
const loader = require("@grpc/proto-loader");
const { ReflectionService } = require("@grpc/reflection");

const INITIAL = "x-grpc-test-echo-initial";
const TRAILING = "x-grpc-test-echo-trailing-bin";

const folder = process.argv[2];
const read = (name) => fs.readFileSync(path.join(folder, name));
const set = loader.loadFileDescriptorSetFromBuffer(read("descriptors.bin"), { keepCase: true });
const testing = grpc.loadPackageDefinition(set).grpc.testing;

const payload = (length) => ({ body: Buffer.alloc(length) });

/** Sends the metadata that comes back first; the metadata that comes back last. */
function echo(call) {
  const trailing = new grpc.Metadata();
  const [initial] = call.metadata.get(INITIAL);
  if (initial !== undefined) {
    const metadata = new grpc.Metadata();
    metadata.set(INITIAL, initial);
    call.sendMetadata(metadata);
  }
  call.metadata.get(TRAILING).forEach((value) => trailing.add(TRAILING, value));
  return trailing;
}

/** The status that a request asks for. */
function refusal({ response_status: status }) {
  return status && status.code ? { code: status.code, details: status.message } : null;
}

function outputs(call, request) {
  const refused = refusal(request);
  if (refused) return call.emit("error", refused);
  (request.response_parameters || []).forEach(({ size }) => call.write({ payload: payload(size) }));
}

const server = new grpc.Server();
server.addService(testing.TestService.service, {
  EmptyCall: (call, done) => done(null, {}),
  UnaryCall(call, done) {
    const trailing = echo(call);
    const refused = refusal(call.request);
    if (refused) return done(refused);
    done(null, { payload: payload(call.request.response_size || 0) }, trailing);
  },
  StreamingOutputCall(call) {
    outputs(call, call.request);
    call.end();
  },
  StreamingInputCall(call, done) {
    let size = 0;
    call.on("data", (request) => (size += request.payload.body.length));
    call.on("end", () => done(null, { aggregated_payload_size: size }));
  },
  FullDuplexCall(call) {
    const trailing = echo(call);
    call.on("data", (request) => outputs(call, request));
    call.on("end", () => call.end(trailing));
  },
});

new ReflectionService(set).addToServer(server);

function bind(address, credentials) {
  return new Promise((resolve, reject) => {
    server.bindAsync(address, credentials, (error, port) => (error ? reject(error) : resolve(port)));
  });
}

async function main() {
  const pair = { private_key: read("server.key"), cert_chain: read("server.pem") };
  const insecure = grpc.ServerCredentials.createInsecure();
  const socket = path.join(folder, "grpc-js.sock");
  fs.rmSync(socket, { force: true });
  const port = await bind("127.0.0.1:0", insecure);
  const tlsPort = await bind("127.0.0.1:0", grpc.ServerCredentials.createSsl(null, [pair]));
  await bind(`unix:${socket}`, insecure);
  console.log(`127.0.0.1:${port}\n127.0.0.1:${tlsPort}\n${socket}`);
}

main();
process.stdin.resume();
process.stdin.on("end", () => process.exit(0));
