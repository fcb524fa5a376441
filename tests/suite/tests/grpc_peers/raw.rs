//! A client of HTTP/2 that sends and reads frames by hand, over any stream.

use std::io;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

pub(crate) const DATA: u8 = 0;
pub(crate) const HEADERS: u8 = 1;
pub(crate) const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;

pub(crate) const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// A frame that has come.
#[derive(Debug)]
pub(crate) struct Frame {
    pub(crate) kind: u8,
    pub(crate) flags: u8,
    pub(crate) payload: Vec<u8>,
}

/// A client of HTTP/2.
#[derive(Debug)]
pub(crate) struct RawClient<S>(S);

impl<S: AsyncRead + AsyncWrite + Unpin> RawClient<S> {
    /// Sends the preface and SETTINGS, and nothing more.
    pub(crate) async fn begin(mut stream: S) -> Self {
        stream.write_all(PREFACE).await.expect("the server listens");
        let mut client = Self(stream);
        client.send(SETTINGS, 0, 0, &[]).await.expect("the server listens");
        client
    }

    async fn send(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) -> io::Result<()> {
        let [_, len @ ..] = u32::try_from(payload.len()).expect("it is short").to_be_bytes();
        let head = [&len[..], &[kind, flags], &stream.to_be_bytes()].concat();
        self.0.write_all(&[&head, payload].concat()).await
    }

    /// Calls `EmptyCall` on a stream, with an authority.
    pub(crate) async fn call(&mut self, stream: u32, authority: &str) {
        let mut block = vec![0x83, 0x86];
        let fields: [(&[u8], &str); 4] = [
            // By their places in HPACK's static table, as gRPC's core writes them.
            (&[0x44], "/grpc.testing.TestService/EmptyCall"),
            (&[0x41], authority),
            (&[0x5f], "application/grpc"),
            (&[0x40, 2, b't', b'e'], "trailers"),
        ];
        for (name, value) in fields {
            block.extend_from_slice(name);
            block.push(u8::try_from(value.len()).expect("it is short"));
            block.extend_from_slice(value.as_bytes());
        }
        self.send(HEADERS, END_HEADERS, stream, &block).await.expect("it is open");
        self.send(DATA, END_STREAM, stream, &[0; 5]).await.expect("it is open");
    }

    /// Reads the next frame; `None` where the server has ended the stream in order.
    pub(crate) async fn frame(&mut self) -> Option<Frame> {
        let mut head = [0; 9];
        match self.0.read_exact(&mut head).await {
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return None,
            Err(error) => panic!("the server resets the connection: {error}"),
        }
        let [a, b, c, kind, flags, ..] = head;
        let mut payload = vec![0; u32::from_be_bytes([0, a, b, c]) as usize];
        self.0.read_exact(&mut payload).await.expect("the frame is whole");
        Some(Frame { kind, flags, payload })
    }

    /// Reads up to a frame of that kind.
    pub(crate) async fn until(&mut self, kind: u8) -> Frame {
        loop {
            let frame = self.frame().await.expect("the server goes on");
            if frame.kind == kind {
                return frame;
            }
        }
    }
}
