//! A TLS session without its socket: decrypted bytes, undecrypted bytes, and records to send.
//!
//! rustls holds at most one record per direction, and 64 KiB of outgoing records. It takes input in
//! steps of 4 KiB, and a system call per step would be slow. The session therefore reads into
//! thread-local memory, as much as the reader has room for, and feeds rustls in steps. It keeps the
//! rest if the reader's room runs out.

use std::cell::RefCell;
use std::io::{self, IoSlice, IoSliceMut, Read as _, Write};

use bytes::{Buf as _, Bytes};
use rpc_core::memory::MemoryCharge;
use rustls::Connection;
use tokio::net::TcpStream;

use super::alpn::Protocols;
use super::messages::{self, Role};
use crate::connection::socket::{Moved, Socket};

/// Maximum bytes per read from the socket: rustls decrypts them in about 20 us.
const READ_LEN: usize = 64 << 10;

/// Minimum bytes per read, so that one call delivers a record of many small frames whole.
const READ_LEN_MIN: usize = 17 << 10;

/// Bytes of records without content after which other tasks get their turn: some 700 records of one
/// byte or none, or changes of keys.
///
/// rustls bounds neither, and each costs it a microsecond or two. A peer that never pauses would
/// occupy the thread. A record with messages has only 22 bytes of overhead.
pub(super) const BARREN_LEN_MAX: usize = 16 << 10;

thread_local! {
    /// The memory that records are read into. The session takes what is left of them before another
    /// session uses it.
    static RECORDS: RefCell<Box<[u8]>> = RefCell::new(vec![0; READ_LEN].into_boxed_slice());
}

/// The state of reading.
enum Reading {
    Open,
    Ended,
    /// Failed after the same attempt had read bytes.
    Failed(io::Error),
}

/// The availability of data without a read from the socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unread {
    Nothing,
    Something,
    /// Something, but only after other tasks have had their turn.
    NextTurn,
}

/// A destination for decrypted bytes.
pub(super) struct Sink<'a, 'b> {
    buffers: &'a mut [IoSliceMut<'b>],
    /// Filled bytes of the first buffer.
    filled: usize,
    len: usize,
}

impl<'a, 'b> Sink<'a, 'b> {
    pub(super) fn new(buffers: &'a mut [IoSliceMut<'b>]) -> Self {
        Self { buffers, filled: 0, len: 0 }
    }

    fn room(&self) -> usize {
        self.buffers.iter().map(|buffer| buffer.len()).sum::<usize>() - self.filled
    }

    /// Returns the free part of the first buffer that is not full.
    fn next(&mut self) -> Option<&mut [u8]> {
        while self.buffers.first().is_some_and(|buffer| buffer.len() == self.filled) {
            self.buffers = std::mem::take(&mut self.buffers).split_first_mut()?.1;
            self.filled = 0;
        }
        self.buffers.first_mut().map(|buffer| &mut buffer[self.filled..])
    }

    fn advance(&mut self, len: usize) {
        self.filled += len;
        self.len += len;
    }
}

/// The reason why a read stops.
enum Stop {
    /// The sink is full, or the stream has ended.
    Full,
    /// The socket is exhausted, and everything from it is in the sink.
    Exhausted,
    /// The turn has used up [`BARREN_LEN_MAX`].
    TurnOver,
}

/// The reason why no more bytes were decrypted.
enum Drained {
    /// The sink is full, and there may be more.
    Full,
    /// More input is needed.
    Dry,
    /// The peer has ended its direction.
    Ended,
}

/// The state of a session.
pub(super) struct Session {
    pub(super) tls: Connection,
    role: Role,
    /// The protocols that may be negotiated.
    pub(super) protocols: Protocols,
    /// Charge for an unfinished handshake in rustls, against a server's memory budget.
    pub(super) handshake_charge: MemoryCharge,
    /// Bytes that were read but not given to rustls yet.
    unseen: Bytes,
    reading: Reading,
    unread: Unread,
    /// Bytes of this turn's records beyond their content.
    barren_len: usize,
    is_closing: bool,
}

impl Session {
    pub(super) fn new(tls: Connection, protocols: Protocols) -> Self {
        let role = match tls {
            Connection::Client(_) => Role::Client,
            Connection::Server(_) => Role::Server,
        };
        let (unseen, reading) = (Bytes::new(), Reading::Open);
        let unread = Unread::Nothing;
        let handshake_charge = MemoryCharge::default();
        Self {
            tls,
            role,
            protocols,
            handshake_charge,
            unseen,
            reading,
            unread,
            barren_len: 0,
            is_closing: false,
        }
    }

    pub(super) fn unread(&self) -> Unread {
        self.unread
    }

    /// Records that there may be data that the socket does not announce.
    pub(super) fn set_unread(&mut self) {
        self.unread = Unread::Something;
    }

    /// Begins a new turn: other tasks have run.
    pub(super) fn begin_turn(&mut self) {
        self.barren_len = 0;
        self.unread = Unread::Something;
    }

    pub(super) fn role(&self) -> Role {
        self.role
    }

    /// Reads until the sink is full or the turn is over. [`unread`](Self::unread) then tells what
    /// to wait for.
    pub(super) fn read(&mut self, tcp: &TcpStream, sink: &mut Sink<'_, '_>) -> io::Result<Moved> {
        // Set first: even a read that returns an error may leave data behind.
        self.unread = Unread::Something;
        let stop = match self.read_to(tcp, sink) {
            Ok(stop) => stop,
            Err(error) if sink.len == 0 => return Err(error),
            Err(error) => {
                self.reading = Reading::Failed(error);
                Stop::Full
            }
        };
        let is_exhausted;
        (self.unread, is_exhausted) = match stop {
            Stop::Full => (Unread::Something, false),
            Stop::Exhausted => (Unread::Nothing, true),
            Stop::TurnOver => (Unread::NextTurn, true),
        };
        if sink.len == 0 && matches!(self.reading, Reading::Open) {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        Ok(Moved { len: sink.len, is_exhausted })
    }

    fn read_to(&mut self, tcp: &TcpStream, sink: &mut Sink<'_, '_>) -> io::Result<Stop> {
        // A failure is reported once. Later reads find the stream ended.
        match std::mem::replace(&mut self.reading, Reading::Ended) {
            Reading::Open => self.reading = Reading::Open,
            Reading::Ended => return Ok(Stop::Full),
            Reading::Failed(error) => return Err(error),
        }
        let mut is_exhausted = false;
        loop {
            match self.drain(sink)? {
                Drained::Full => return Ok(Stop::Full),
                Drained::Ended => {
                    self.reading = Reading::Ended;
                    return Ok(Stop::Full);
                }
                Drained::Dry => {}
            }
            // Checked only after the sink has taken everything: what rustls has decrypted must not
            // wait for a socket that stays silent.
            if self.barren_len >= BARREN_LEN_MAX {
                return Ok(Stop::TurnOver);
            }
            if !self.unseen.is_empty() {
                let mut records = std::mem::take(&mut self.unseen);
                let left = self.decrypt(tcp, &records, sink)?;
                records.advance(records.len() - left);
                self.unseen = records;
                continue;
            }
            if is_exhausted {
                return Ok(Stop::Exhausted);
            }
            // The closure borrows the thread's memory. Whatever it cannot decrypt now moves to the
            // session, since the next session on this thread overwrites it.
            let read: io::Result<Moved> = RECORDS.with_borrow_mut(|memory| {
                let len = sink.room().clamp(READ_LEN_MIN, READ_LEN);
                let read = Socket::try_read(tcp, &mut [IoSliceMut::new(&mut memory[..len])])?;
                let records = &memory[..read.len];
                let left = self.decrypt(tcp, records, sink)?;
                self.unseen = Bytes::copy_from_slice(&records[records.len() - left..]);
                Ok(read)
            });
            match read {
                // The peer closed without close_notify. Its calls end as with any broken
                // connection.
                Ok(Moved { len: 0, .. }) => {
                    self.reading = Reading::Ended;
                    return Ok(Stop::Full);
                }
                Ok(read) => is_exhausted = read.is_exhausted,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => is_exhausted = true,
                Err(error) => return Err(error),
            }
        }
    }

    /// Moves decrypted bytes to the sink.
    fn drain(&mut self, sink: &mut Sink<'_, '_>) -> io::Result<Drained> {
        loop {
            let Some(buffer) = sink.next() else { return Ok(Drained::Full) };
            match self.tls.reader().read(buffer) {
                Ok(0) => return Ok(Drained::Ended),
                Ok(len) => {
                    sink.advance(len);
                    self.barren_len = self.barren_len.saturating_sub(len);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(Drained::Dry),
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                    return Ok(Drained::Ended);
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Decrypts records until the sink is full or the turn is over. Returns the number of
    /// undecrypted bytes.
    fn decrypt(
        &mut self,
        tcp: &TcpStream,
        mut records: &[u8],
        sink: &mut Sink<'_, '_>,
    ) -> io::Result<usize> {
        while !records.is_empty() {
            self.take(&mut records).map_err(|error| {
                // Tells the peer the reason, if its socket has room.
                let _ = self.flush(tcp);
                let message = messages::describe_error(self.role, &self.protocols.list, &error);
                io::Error::new(io::ErrorKind::InvalidData, message)
            })?;
            let is_dry = matches!(self.drain(sink)?, Drained::Dry);
            if !is_dry || self.barren_len >= BARREN_LEN_MAX {
                break;
            }
        }
        Ok(records.len())
    }

    /// Feeds rustls one step of input. The caller must have drained all decrypted bytes.
    pub(super) fn take(&mut self, records: &mut &[u8]) -> Result<(), rustls::Error> {
        let taken = self.tls.read_tls(records).map_err(|error| {
            // The record exceeds TLS's maximum length.
            rustls::Error::General(error.to_string())
        })?;
        if taken == 0 {
            // Bytes after the peer's end are ignored.
            *records = &[];
        }
        self.barren_len += taken;
        self.tls.process_new_packets().map(drop)
    }

    /// Encrypts and writes as many bytes as fit.
    pub(super) fn write(&mut self, tcp: &TcpStream, buffers: &[IoSlice<'_>]) -> io::Result<Moved> {
        // Older records first. Without this check, rustls would buffer plaintext for a full socket.
        if !self.flush(tcp)? {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let max: usize = buffers.iter().map(|buffer| buffer.len()).sum();
        let mut len = self.tls.writer().write_vectored(buffers)?;
        let mut is_flushed = self.flush(tcp)?;
        if len < max && is_flushed {
            let mut rest = buffers.to_vec();
            let mut rest = rest.as_mut_slice();
            IoSlice::advance_slices(&mut rest, len);
            while len < max && is_flushed {
                let more = self.tls.writer().write_vectored(rest)?;
                IoSlice::advance_slices(&mut rest, more);
                len += more;
                is_flushed = self.flush(tcp)?;
            }
        }
        Ok(Moved { len, is_exhausted: !is_flushed })
    }

    /// Writes the pending records. Returns false if the socket is full first.
    pub(super) fn flush(&mut self, tcp: &TcpStream) -> io::Result<bool> {
        while self.tls.wants_write() {
            match self.tls.write_tls(&mut Records(tcp)) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    /// Sends close_notify, once.
    pub(super) fn close(&mut self) {
        if !std::mem::replace(&mut self.is_closing, true) {
            self.tls.send_close_notify();
        }
    }
}

/// The socket as rustls writes records to it.
struct Records<'a>(&'a TcpStream);

impl Write for Records<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Socket::try_write(self.0, &[IoSlice::new(bytes)]).map(|moved| moved.len)
    }

    fn write_vectored(&mut self, buffers: &[IoSlice<'_>]) -> io::Result<usize> {
        Socket::try_write(self.0, buffers).map(|moved| moved.len)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
