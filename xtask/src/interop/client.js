// grpc-js against the port of a farcall server: without TLS ("plain"), with it ("tls"), and with certificates of
// both sides ("mutual"). Prints a line for each case, "ok NAME" or "FAILED NAME: why", and "done" at its end.
"use strict";

const assert = require("node:assert");
const fs = require("node:fs");
const path = require("node:path");
const grpc = require("@grpc/grpc-js");
const loader = require("@grpc/proto-loader");

const LIMIT_MS = 20000;
const REQUEST_LENS = [27182, 8, 1828, 45904];
const RESPONSE_LENS = [31415, 9, 2653, 58979];
const SPECIAL = "\t\n blanks, a line\r\nand 100 %41: \u263a \u00df \u65e5\u672c \u{1f608}\t\n";

const [target, security, folder, calls] = process.argv.slice(2);
const read = (name) => fs.readFileSync(path.join(folder, name));
const set = loader.loadFileDescriptorSetFromBuffer(read("descriptors.bin"), { keepCase: true });
const testing = grpc.loadPackageDefinition(set).grpc.testing;

function credentials() {
  switch (security) {
    case "plain":
      return grpc.credentials.createInsecure();
    case "tls":
      return grpc.credentials.createSsl(read("ca.pem"));
    default:
      return grpc.credentials.createSsl(read("ca.pem"), read("client.key"), read("client.pem"));
  }
}

const client = new testing.TestService(target, credentials());
const deadline = (ms = LIMIT_MS) => ({ deadline: Date.now() + ms });
const payload = (length) => ({ body: Buffer.alloc(length) });
const output = (requestLen, responseLen) => ({
  response_parameters: [{ size: responseLen }],
  payload: payload(requestLen),
});

/** Makes a unary call: its answer, and its metadata. */
function unary(method, request, metadata = new grpc.Metadata(), options = deadline()) {
  return new Promise((resolve, reject) => {
    const seen = {};
    const call = client[method](request, metadata, options, (error, answer) => {
      if (error) return reject(error);
      seen.answer = answer;
      if (seen.status) resolve(seen);
    });
    call.on("metadata", (initial) => (seen.initial = initial));
    call.on("status", (status) => {
      seen.status = status;
      if (seen.answer) resolve(seen);
    });
  });
}

/** Reads a stream to its end: the lengths of its payloads. */
function lengths(call) {
  return new Promise((resolve, reject) => {
    const seen = [];
    call.on("data", (answer) => seen.push(answer.payload.body.length));
    call.on("error", reject);
    call.on("end", () => resolve(seen));
  });
}

async function refused(promise) {
  try {
    await promise;
  } catch (error) {
    return error;
  }
  throw new Error("the call succeeded");
}

const cases = {
  async empty_unary() {
    await unary("EmptyCall", {});
  },
  async large_unary() {
    const request = { response_size: 314159, payload: payload(271828) };
    const { answer } = await unary("UnaryCall", request);
    assert.strictEqual(answer.payload.body.length, 314159);
  },
  async client_streaming() {
    const answer = await new Promise((resolve, reject) => {
      const done = (error, answer) => (error ? reject(error) : resolve(answer));
      const call = client.StreamingInputCall(deadline(), done);
      REQUEST_LENS.forEach((length) => call.write({ payload: payload(length) }));
      call.end();
    });
    const sum = REQUEST_LENS.reduce((a, b) => a + b);
    assert.strictEqual(answer.aggregated_payload_size, sum);
  },
  async server_streaming() {
    const request = { response_parameters: RESPONSE_LENS.map((size) => ({ size })) };
    const call = client.StreamingOutputCall(request, deadline());
    assert.deepStrictEqual(await lengths(call), RESPONSE_LENS);
  },
  async ping_pong() {
    const call = client.FullDuplexCall(deadline());
    const seen = lengths(call);
    let turn = 0;
    const next = () => {
      if (turn === REQUEST_LENS.length) return call.end();
      call.write(output(REQUEST_LENS[turn], RESPONSE_LENS[turn]));
      turn += 1;
    };
    call.on("data", next);
    next();
    assert.deepStrictEqual(await seen, RESPONSE_LENS);
  },
  async empty_stream() {
    const call = client.FullDuplexCall(deadline());
    const seen = lengths(call);
    call.end();
    assert.deepStrictEqual(await seen, []);
  },
  async metadata_both_ways() {
    const metadata = new grpc.Metadata();
    metadata.set("x-grpc-test-echo-initial", "comes back first");
    metadata.set("x-grpc-test-echo-trailing-bin", Buffer.from([0xab, 0, 0xff]));
    const { initial, status } = await unary("UnaryCall", { response_size: 1 }, metadata);
    assert.deepStrictEqual(initial.get("x-grpc-test-echo-initial"), ["comes back first"]);
    const trailing = status.metadata.get("x-grpc-test-echo-trailing-bin");
    assert.deepStrictEqual(trailing, [Buffer.from([0xab, 0, 0xff])]);
  },
  async status_of_special_words() {
    const request = { response_status: { code: 2, message: SPECIAL } };
    const error = await refused(unary("UnaryCall", request));
    assert.strictEqual(error.code, grpc.status.UNKNOWN);
    assert.strictEqual(error.details, SPECIAL);
  },
  async unimplemented_method() {
    const error = await refused(unary("UnimplementedCall", {}));
    assert.strictEqual(error.code, grpc.status.UNIMPLEMENTED);
  },
  async unimplemented_service() {
    const other = new testing.UnimplementedService(target, credentials());
    const error = await refused(
      new Promise((resolve, reject) => {
        const done = (error, answer) => (error ? reject(error) : resolve(answer));
        other.UnimplementedCall({}, deadline(), done);
      }),
    );
    other.close();
    assert.strictEqual(error.code, grpc.status.UNIMPLEMENTED);
  },
  async deadline() {
    const call = client.FullDuplexCall(deadline(300));
    const error = await refused(lengths(call));
    assert.strictEqual(error.code, grpc.status.DEADLINE_EXCEEDED);
  },
  async cancel_after_begin() {
    const call = client.FullDuplexCall(deadline());
    const error = refused(lengths(call));
    call.cancel();
    assert.strictEqual((await error).code, grpc.status.CANCELLED);
    await cases.empty_unary();
  },
  async cancel_after_first_response() {
    const call = client.FullDuplexCall(deadline());
    const error = refused(lengths(call));
    call.on("data", () => call.cancel());
    call.write(output(27182, 31415));
    assert.strictEqual((await error).code, grpc.status.CANCELLED);
    await cases.empty_unary();
  },
  async calls_at_once() {
    const request = { response_size: 1000, payload: payload(1000) };
    const options = deadline(10 * LIMIT_MS);
    const all = Array.from({ length: Number(calls) }, () =>
      unary("UnaryCall", request, new grpc.Metadata(), options),
    );
    const settled = await Promise.allSettled(all);
    const failed = settled.filter((call) => call.status === "rejected");
    assert.strictEqual(failed.length, 0, `${failed.length} of ${calls} failed: ${failed[0]?.reason}`);
    console.log(`${calls} calls at once: 0 failed`);
  },
};

async function main() {
  for (const [name, run] of Object.entries(cases)) {
    try {
      await run();
      console.log(`ok ${name}`);
    } catch (error) {
      console.log(`FAILED ${name}: ${String(error).replace(/\s+/g, " ").slice(0, 300)}`);
    }
  }
  console.log("done");
  // Timers of closed channels would keep the process.
  process.exit(0);
}

main();
