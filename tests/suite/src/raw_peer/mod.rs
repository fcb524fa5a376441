//! A peer on a TCP socket that speaks by hand, so that it can also say what no peer should.
//!
//! The record format is written down here a second time, on purpose: a change of the wire that
//! both of farcall's sides agree on still fails a test.

use std::io;

use bytes::Bytes;
use farcall::Limits;
use rpc_core::wire::hello::{self, Hello, PREFIX_LEN};
use rpc_core::wire::{FrameHeader, FrameKind, HEADER_LEN};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// The length of a record's header.
const RECORD_HEADER_LEN: usize = 12;

/// One end of a socket.
#[derive(Debug)]
pub struct RawPeer {
    stream: TcpStream,
}

/// A frame that has been read.
#[derive(Debug)]
pub struct RawFrame {
    /// Its header.
    pub header: FrameHeader,
    /// Its block and message.
    pub body: Bytes,
}

impl RawPeer {
    /// A peer on an open socket.
    #[must_use]
    pub fn new(stream: TcpStream) -> Self {
        Self { stream }
    }

    /// Connects to an address as a server under test gives it.
    ///
    /// # Errors
    ///
    /// Returns an error if no server listens.
    ///
    /// # Cancel safety
    ///
    /// Cancelled, nothing is left behind.
    pub async fn connect(address: &str) -> io::Result<Self> {
        let address = address.trim_start_matches("tcp://");
        Ok(Self::new(TcpStream::connect(address).await?))
    }

    /// Sends bytes, whatever they are.
    ///
    /// # Errors
    ///
    /// Returns an error if the other side has closed.
    ///
    /// # Cancel safety
    ///
    /// Cancelled, a part may have been sent.
    pub async fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes).await
    }

    /// Says that nothing more will be sent.
    ///
    /// # Errors
    ///
    /// Returns an error if the other side has closed.
    ///
    /// # Cancel safety
    ///
    /// Cancelled, it may have been said.
    pub async fn finish(&mut self) -> io::Result<()> {
        self.stream.shutdown().await
    }

    /// Sends a good Hello and reads the other side's.
    ///
    /// # Errors
    ///
    /// Returns an error if what comes back is none.
    ///
    /// # Cancel safety
    ///
    /// Cancelled, the peer is of no use any more.
    pub async fn greet(&mut self) -> io::Result<Hello> {
        self.send(&hello_bytes(Vec::new())).await?;
        self.read_hello().await
    }

    /// Reads a Hello.
    ///
    /// # Errors
    ///
    /// Returns an error if what comes is none.
    ///
    /// # Cancel safety
    ///
    /// Cancelled, the peer is of no use any more.
    pub async fn read_hello(&mut self) -> io::Result<Hello> {
        let mut prefix = [0; PREFIX_LEN];
        self.stream.read_exact(&mut prefix).await?;
        let mut body =
            vec![0; hello::decode_prefix(&hello::SERVER_HELLO, &prefix).map_err(io::Error::other)?];
        self.stream.read_exact(&mut body).await?;
        hello::decode_body(&hello::SERVER_HELLO, &body).map_err(io::Error::other)
    }

    /// Reads a frame that travels whole.
    ///
    /// # Errors
    ///
    /// Returns an error if what comes is none.
    ///
    /// # Cancel safety
    ///
    /// Cancelled, the peer is of no use any more.
    pub async fn read_frame(&mut self) -> io::Result<RawFrame> {
        let mut record = [0; RECORD_HEADER_LEN];
        self.stream.read_exact(&mut record).await?;
        let [1, 0, 0, 0, l0, l1, l2, l3, ..] = record else {
            return Err(io::Error::other(format!("no whole frame: {record:?}")));
        };
        let mut frame = vec![0; u32::from_le_bytes([l0, l1, l2, l3]) as usize];
        self.stream.read_exact(&mut frame).await?;
        let header = FrameHeader::parse_whole(&frame).map_err(io::Error::other)?;
        Ok(RawFrame { header, body: Bytes::from(frame).slice(HEADER_LEN..) })
    }

    /// Reads a record: its kind as [`record`] has it, its transfer and what is in it.
    ///
    /// # Errors
    ///
    /// Returns an error if the other side has closed.
    ///
    /// # Cancel safety
    ///
    /// Cancelled, the peer is of no use any more.
    pub async fn read_record(&mut self) -> io::Result<(u8, u32, Bytes)> {
        let mut header = [0; RECORD_HEADER_LEN];
        self.stream.read_exact(&mut header).await?;
        let [kind, _, _, _, l0, l1, l2, l3, t0, t1, t2, t3] = header;
        let mut body = vec![0; u32::from_le_bytes([l0, l1, l2, l3]) as usize];
        self.stream.read_exact(&mut body).await?;
        Ok((kind, u32::from_le_bytes([t0, t1, t2, t3]), body.into()))
    }

    /// Reads a receipt: how many bytes of pieces the other side has read.
    ///
    /// # Errors
    ///
    /// Returns an error if what comes is none.
    ///
    /// # Cancel safety
    ///
    /// Cancelled, the peer is of no use any more.
    pub async fn read_receipt(&mut self) -> io::Result<u64> {
        let mut receipt = [0; RECORD_HEADER_LEN + 8];
        self.stream.read_exact(&mut receipt).await?;
        match receipt {
            [4, 0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0, count @ ..] => Ok(u64::from_le_bytes(count)),
            other => Err(io::Error::other(format!("no receipt: {other:?}"))),
        }
    }

    /// Reads until the other side has closed, in order or not.
    ///
    /// # Cancel safety
    ///
    /// Cancelled, what was read is lost.
    pub async fn closed(&mut self) {
        let mut sink = [0; 4096];
        while !matches!(self.stream.read(&mut sink).await, Ok(0) | Err(_)) {}
    }
}

/// The bytes of a good Hello with these methods.
#[must_use]
pub fn hello_bytes(methods: Vec<String>) -> Vec<u8> {
    hello_with(&Limits::default(), methods)
}

/// The bytes of a good Hello with these limits and methods.
#[must_use]
pub fn hello_with(limits: &Limits, methods: Vec<String>) -> Vec<u8> {
    let mut hello = Hello::new(limits);
    hello.methods = methods;
    // Only a table of methods longer than a MiB would not fit.
    hello::encode(&hello).unwrap_or_default()
}

/// A record: 1 is a whole frame, 2 a first piece, 3 a next piece, 4 a receipt; anything else is
/// garbage.
#[must_use]
pub fn record(kind: u8, transfer: u32, body: &[u8]) -> Vec<u8> {
    let len = u32::try_from(body.len()).unwrap_or(u32::MAX);
    [&[kind, 0, 0, 0], &len.to_le_bytes()[..], &transfer.to_le_bytes(), body].concat()
}

/// A frame without metadata.
#[must_use]
pub fn frame(kind: FrameKind, call: u64, selector: u16, message: &[u8]) -> Vec<u8> {
    let mut header = FrameHeader::bare(kind, call);
    header.selector = selector;
    header.message_len = message.len() as u64;
    [&header.to_bytes()[..], message].concat()
}
