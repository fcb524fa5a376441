//! A TLS session beside its socket: what is decrypted, what is not, and what still has to leave.
//!
//! rustls has no more than one record of each direction in memory, and 64 KiB of records that wait
//! to leave. It takes what was read in steps of 4 KiB; so many calls into the kernel would be one
//! for each step. The session reads into memory of the thread, as much as the reader has room for,
//! and gives rustls that in steps. What the reader then has no room for stays here.

use std::cell::RefCell;
use std::io::{self, IoSlice, IoSliceMut, Read as _, Write};

use bytes::{Buf as _, Bytes};
use rpc_core::memory::MemoryCharge;
use rustls::Connection;
use tokio::net::TcpStream;

use super::alpn::Protocols;
use super::words::{self, Role};
use crate::connection::socket::{Moved, Socket};

/// The most that is read from the socket at a time: what takes rustls about 20 us to decrypt.
const READ_LEN: usize = 64 << 10;

/// The least, so that one call brings a record of many small frames whole.
const READ_LEN_MIN: usize = 17 << 10;

/// How many bytes of records may carry nothing before other tasks have their turn: some 700
/// records of one byte or none, or changes of keys. rustls bounds neither, and each takes it a
/// microsecond or two, so that a peer that never pauses would keep the thread. Records of messages
/// carry all but 22 bytes each.
pub(super) const BARREN_LEN_MAX: usize = 16 << 10;

thread_local! {
    /// Where records are read to. What is left of them goes to the session before another one
    /// uses it.
    static RECORDS: RefCell<Box<[u8]>> = RefCell::new(vec![0; READ_LEN].into_boxed_slice());
}

/// How reading stands.
enum Reading {
    Open,
    Ended,
    /// It failed behind bytes that came with the same attempt.
    Failed(io::Error),
}

/// Whether something may be read without the socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unread {
    Nothing,
    Something,
    /// The same, once other tasks have had their turn.
    NextTurn,
}

/// Where decrypted bytes go.
pub(super) struct Sink<'a, 'b> {
    buffers: &'a mut [IoSliceMut<'b>],
    /// The bytes of the first buffer that are filled.
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

    /// What is still to be filled of the first buffer that is not full.
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

/// Why reading stops.
enum Stop {
    /// The sink is full, or the stream is over.
    Full,
    /// The socket is exhausted, and all that it gave is in the sink.
    Exhausted,
    /// [`BARREN_LEN_MAX`].
    TurnOver,
}

/// Why no more was decrypted.
enum Drained {
    /// The sink is full, and more may be there.
    Full,
    /// More has to be read.
    Dry,
    /// The peer has ended its direction.
    Ended,
}

/// The state of a session.
pub(super) struct Session {
    pub(super) tls: Connection,
    role: Role,
    /// What may be spoken over it.
    pub(super) protocols: Protocols,
    /// What rustls may hold of an unfinished handshake, in a server's memory budget.
    pub(super) handshake_charge: MemoryCharge,
    /// What was read and rustls has not seen.
    unseen: Bytes,
    reading: Reading,
    unread: Unread,
    /// The bytes of this turn's records beyond what they carried.
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

    /// Records that there may be something that the socket does not tell of.
    pub(super) fn set_unread(&mut self) {
        self.unread = Unread::Something;
    }

    /// Other tasks have had their turn.
    pub(super) fn begin_turn(&mut self) {
        self.barren_len = 0;
        self.unread = Unread::Something;
    }

    pub(super) fn role(&self) -> Role {
        self.role
    }

    /// Reads what there is, until the sink is full or the turn is over. Then
    /// [`unread`](Self::unread) tells what to wait for.
    pub(super) fn read(&mut self, tcp: &TcpStream, sink: &mut Sink<'_, '_>) -> io::Result<Moved> {
        // An error that is returned may leave something, too.
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
        // A failure is reported once; later reads find the stream ended.
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
            let read: io::Result<Moved> = RECORDS.with_borrow_mut(|memory| {
                let len = sink.room().clamp(READ_LEN_MIN, READ_LEN);
                let read = Socket::try_read(tcp, &mut [IoSliceMut::new(&mut memory[..len])])?;
                let records = &memory[..read.len];
                let left = self.decrypt(tcp, records, sink)?;
                self.unseen = Bytes::copy_from_slice(&records[records.len() - left..]);
                Ok(read)
            });
            match read {
                // An end without the peer's word: its calls end as with any broken connection.
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

    /// Moves what is decrypted to the sink.
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

    /// Decrypts records until the sink is full or the turn is over, and says how many bytes are
    /// left of them.
    fn decrypt(
        &mut self,
        tcp: &TcpStream,
        mut records: &[u8],
        sink: &mut Sink<'_, '_>,
    ) -> io::Result<usize> {
        while !records.is_empty() {
            self.take(&mut records).map_err(|error| {
                // The peer is told why, if its socket has room.
                let _ = self.flush(tcp);
                let words = words::of_error(self.role, &self.protocols.list, &error);
                io::Error::new(io::ErrorKind::InvalidData, words)
            })?;
            let is_dry = matches!(self.drain(sink)?, Drained::Dry);
            if !is_dry || self.barren_len >= BARREN_LEN_MAX {
                break;
            }
        }
        Ok(records.len())
    }

    /// Gives rustls a step of what was read. Nothing decrypted may be left.
    pub(super) fn take(&mut self, records: &mut &[u8]) -> Result<(), rustls::Error> {
        let taken = self.tls.read_tls(records).map_err(|error| {
            // A record longer than TLS has them.
            rustls::Error::General(error.to_string())
        })?;
        if taken == 0 {
            // Behind the peer's end nothing counts.
            *records = &[];
        }
        self.barren_len += taken;
        self.tls.process_new_packets().map(drop)
    }

    /// Encrypts and writes as much as fits.
    pub(super) fn write(&mut self, tcp: &TcpStream, buffers: &[IoSlice<'_>]) -> io::Result<Moved> {
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

    /// Writes the records that wait to leave; false when the socket is full before.
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

    /// Tells the peer that nothing more will come, once.
    pub(super) fn close(&mut self) {
        if !std::mem::replace(&mut self.is_closing, true) {
            self.tls.send_close_notify();
        }
    }
}

/// The socket, as rustls writes records to it.
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
