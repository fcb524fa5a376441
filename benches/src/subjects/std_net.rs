//! The floor: blocking sockets of the standard library, a thread a connection, nothing between the
//! socket and the payload but five bytes of header.
//!
//! Calls in flight are batches here: as many requests as wanted in one write, then as many answers.
//! No general RPC library can do better on the same socket. Only one call at a time is made where
//! payloads are large. A request is one byte of operation and the length of the payload, or of what
//! is wanted; an answer is the length and the payload. Lengths are four bytes, little-endian.

use std::io::{BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context as _, Result, bail, ensure};
use parking_lot::Mutex;
use tokio::task::JoinHandle;

use crate::worker::{Connection, Load, Operation, Quota, Span, Subject, Tally};

const BUFFER_LEN: usize = 64 << 10;

/// No client of the harness asks for more.
const PAYLOAD_LEN_MAX: usize = 64 << 20;

/// Payloads up to here are called in batches.
const BATCHED_LEN_MAX: usize = 4 << 10;

const ECHO: u8 = 0;
const UPLOAD: u8 = 1;
const DOWNLOAD: u8 = 2;
const FEED: u8 = 3;

/// Blocking sockets as a subject.
#[derive(Debug, Clone, Copy)]
pub struct StdNet;

/// A blocking connection to what serves here.
pub trait Wire: Read + Write + Send + Sized + 'static {
    /// Another connection to the same server.
    fn another(&self) -> Result<Self>;
}

impl Wire for TcpStream {
    fn another(&self) -> Result<Self> {
        Ok(TcpStream::connect(self.peer_addr()?)?)
    }
}

impl Subject for StdNet {
    type Connection = StdConnection<TcpStream>;

    async fn serve(&self, address: &str) -> Result<String> {
        listen(address, Ok)
    }

    async fn connect(&self, address: &str) -> Result<StdConnection<TcpStream>> {
        Ok(StdConnection::new(connect(address)?))
    }
}

/// Serves every connection on a thread of its own, as what `wire` makes of it.
pub(super) fn listen<W: Wire>(
    address: &str,
    wire: impl Fn(TcpStream) -> Result<W> + Send + 'static,
) -> Result<String> {
    let listener = TcpListener::bind(host_and_port(address)?)?;
    let address = format!("tcp://{}", listener.local_addr()?);
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let wire = stream.set_nodelay(true).map_err(Into::into).and_then(|()| wire(stream));
            // The end of a connection is the end of its thread, whatever it was.
            std::thread::spawn(move || serve(wire?));
        }
    });
    Ok(address)
}

/// A socket that is connected with what listens at `address`.
pub(super) fn connect(address: &str) -> Result<TcpStream> {
    let stream = TcpStream::connect(host_and_port(address)?)
        .with_context(|| format!("connecting to {address}"))?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// The part of an address behind `tcp://`.
pub(super) fn host_and_port(address: &str) -> Result<&str> {
    address.strip_prefix("tcp://").with_context(|| format!("{address}: only tcp:// is served here"))
}

fn serve(wire: impl Wire) -> Result<()> {
    let mut reader = BufReader::with_capacity(BUFFER_LEN, wire);
    // Answers that leave together.
    let mut answers = Vec::with_capacity(BUFFER_LEN);
    // Used again for every payload: it grows to the longest.
    let mut memory = Vec::new();
    loop {
        let mut operation = [0];
        reader.read_exact(&mut operation)?;
        let len = read_len(&mut reader)?;
        if memory.len() < len {
            memory.resize(len, 7);
        }
        let payload = &mut memory[..len];
        match operation[0] {
            ECHO => {
                reader.read_exact(payload)?;
                answer(reader.get_mut(), &mut answers, payload)?;
            }
            UPLOAD => {
                reader.read_exact(payload)?;
                answer(reader.get_mut(), &mut answers, &[])?;
            }
            DOWNLOAD => answer(reader.get_mut(), &mut answers, payload)?,
            FEED => loop {
                answer(reader.get_mut(), &mut answers, payload)?;
            },
            other => bail!("no operation has the number {other}"),
        }
        if reader.buffer().is_empty() {
            send(reader.get_mut(), &mut answers)?;
        }
    }
}

fn read_len(reader: &mut impl Read) -> Result<usize> {
    let mut len = [0; 4];
    reader.read_exact(&mut len)?;
    let len = usize::try_from(u32::from_le_bytes(len))?;
    ensure!(len <= PAYLOAD_LEN_MAX, "{len} bytes are too many");
    Ok(len)
}

/// Adds an answer to those that leave together; a long payload leaves behind them at once.
fn answer(wire: &mut impl Write, answers: &mut Vec<u8>, payload: &[u8]) -> Result<()> {
    if answers.len() + payload.len() > BUFFER_LEN {
        send(wire, answers)?;
    }
    answers.extend(u32::try_from(payload.len())?.to_le_bytes());
    if payload.len() < BUFFER_LEN {
        answers.extend(payload);
        return Ok(());
    }
    send(wire, answers)?;
    Ok(wire.write_all(payload)?)
}

fn send(wire: &mut impl Write, answers: &mut Vec<u8>) -> Result<()> {
    wire.write_all(answers)?;
    wire.flush()?;
    answers.clear();
    Ok(())
}

/// One socket. Its loads take turns.
pub struct StdConnection<W: Wire> {
    stream: Arc<Mutex<BufReader<W>>>,
}

impl<W: Wire> std::fmt::Debug for StdConnection<W> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StdConnection").finish_non_exhaustive()
    }
}

impl<W: Wire> StdConnection<W> {
    pub(super) fn new(wire: W) -> Self {
        let reader = BufReader::with_capacity(BUFFER_LEN, wire);
        Self { stream: Arc::new(Mutex::new(reader)) }
    }
}

impl<W: Wire> Connection for StdConnection<W> {
    fn start(&self, load: &Load, in_flight: usize, quota: Quota) -> Vec<JoinHandle<Result<Tally>>> {
        let (stream, load) = (Arc::clone(&self.stream), *load);
        let batch = if load.size <= BATCHED_LEN_MAX { in_flight } else { 1 };
        // Its share is that of all callers that it stands for.
        let quota = quota.times(in_flight);
        vec![tokio::task::spawn_blocking(move || {
            let mut stream = stream.lock();
            match load.operation {
                Operation::Feed => feed(&stream, load.size, quota),
                _ => call(&mut stream, &load, batch, quota),
            }
        })]
    }
}

fn call(
    stream: &mut BufReader<impl Wire>,
    load: &Load,
    batch: usize,
    mut quota: Quota,
) -> Result<Tally> {
    let mut tally = Tally::new()?;
    let requests = requests(load, batch)?;
    let request_len = requests.len() / batch;
    let mut memory = vec![0; load.size];
    let mut begun = Instant::now();
    loop {
        let count = quota.batch(begun, batch);
        if count == 0 {
            return Ok(tally);
        }
        stream.get_mut().write_all(&requests[..count * request_len])?;
        stream.get_mut().flush()?;
        for _ in 0..count {
            let len = read_len(stream)?;
            let expected = if load.operation == Operation::Upload { 0 } else { load.size };
            ensure!(len == expected, "{len} bytes came back, not {expected}");
            stream.read_exact(&mut memory[..len])?;
        }
        let ended = Instant::now();
        tally.add_calls(ended - begun, count as u64)?;
        quota.add(count as u64);
        begun = ended;
    }
}

/// Requests of a batch, one behind the other.
fn requests(load: &Load, batch: usize) -> Result<Vec<u8>> {
    let (operation, has_payload) = match load.operation {
        Operation::Echo => (ECHO, true),
        Operation::Upload => (UPLOAD, true),
        Operation::Download => (DOWNLOAD, false),
        Operation::Feed => (FEED, false),
    };
    let mut request = vec![operation];
    request.extend(u32::try_from(load.size)?.to_le_bytes());
    request.resize(request.len() + usize::from(has_payload) * load.size, 5);
    Ok(request.repeat(batch))
}

/// Takes messages, on a connection of its own that is used up by that: the stream has no end.
fn feed(stream: &BufReader<impl Wire>, len: usize, mut quota: Quota) -> Result<Tally> {
    let mut feeding = stream.get_ref().another()?;
    let load = Load::new(Operation::Feed, len, Span::Calls(1));
    feeding.write_all(&requests(&load, 1)?)?;
    let mut reader = BufReader::with_capacity(BUFFER_LEN, feeding);
    let mut memory = vec![0; len];
    while quota.wants_message() {
        ensure!(read_len(&mut reader)? == len, "a message of another length");
        reader.read_exact(&mut memory)?;
        quota.add(1);
    }
    let mut tally = Tally::new()?;
    tally.add_messages(quota.done());
    Ok(tally)
}
