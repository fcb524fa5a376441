//! Buffers of scripts, and a ledger of what a device or a peer may do with them.
//!
//! What is checked here: no memory is given back while the peer may read it, and at the end all of
//! it has come back.

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, HashSet, VecDeque};
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::rc::Rc;

use rpc_core::wire::HEADER_LEN;

use crate::proto::connection::{Buffers, Payload};
use crate::proto::remote_memory::{RemoteKey, RemoteMemory};
use crate::proto::rndv::get::Chunk;
use crate::proto::rndv::memory_windows::Bind;
use crate::proto::rndv::throttle::ReadShare;
use crate::proto::wire::{Rts, RtsSegment};

/// The length of a frame that is offered here.
const OFFERED_LEN: u64 = 100_000;

/// A key that opens memory to the peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Access {
    /// The registration, until the peer has released the transfer.
    Transfer(u32),
    /// A window, until its key is dead.
    Key(RemoteKey),
}

/// All buffers of a script.
#[derive(Default)]
pub(crate) struct Ledger {
    next_id: u64,
    live: HashSet<u64>,
    /// By what the peer may read each payload.
    open: HashMap<u64, HashSet<Access>>,
    /// Set when the queue pairs are destroyed and nothing can be read any more.
    pub(crate) is_gone: bool,
}

pub(crate) type Books = Rc<RefCell<Ledger>>;

impl Ledger {
    pub(crate) fn live_count(&self) -> usize {
        self.live.len()
    }

    pub(crate) fn open(&mut self, payload: u64, access: Access) {
        self.open.entry(payload).or_default().insert(access);
    }

    /// The peer can read by this no more.
    pub(crate) fn shut(&mut self, access: Access) {
        for accesses in self.open.values_mut() {
            accesses.remove(&access);
        }
    }

    /// The keys by which the peer may read something.
    pub(crate) fn keys(&self) -> Vec<RemoteKey> {
        let mut keys: Vec<_> = self
            .open
            .values()
            .flatten()
            .filter_map(|access| match access {
                Access::Key(key) => Some(*key),
                Access::Transfer(_) => None,
            })
            .collect();
        keys.sort_by_key(|key| key.0);
        keys
    }
}

/// Something that has to come back.
pub(crate) struct Token {
    pub(crate) id: u64,
    books: Books,
}

impl Token {
    pub(crate) fn new(books: &Books) -> Self {
        let mut ledger = books.borrow_mut();
        ledger.next_id += 1;
        let id = ledger.next_id;
        ledger.live.insert(id);
        Self { id, books: Rc::clone(books) }
    }
}

impl Drop for Token {
    fn drop(&mut self) {
        let (accesses, is_gone) = {
            let mut ledger = self.books.borrow_mut();
            ledger.live.remove(&self.id);
            (ledger.open.remove(&self.id).unwrap_or_default(), ledger.is_gone)
        };
        let is_shut = accesses.is_empty() || is_gone || std::thread::panicking();
        assert!(is_shut, "memory comes back that the peer may read by {accesses:?}");
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "#{}", self.id)
    }
}

/// Memory of one message.
#[derive(Debug)]
pub(crate) struct Slot {
    _token: Token,
    bytes: Vec<u8>,
}

impl Slot {
    pub(crate) fn new(books: &Books, len: usize) -> Self {
        Self { _token: Token::new(books), bytes: vec![0; len] }
    }
}

impl Deref for Slot {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

impl DerefMut for Slot {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.bytes
    }
}

/// Memory of an offered frame.
#[derive(Debug)]
pub(crate) struct OfferedFrame {
    pub(crate) token: Token,
    /// Set if it is a part of a path's proof.
    is_proof: bool,
}

impl OfferedFrame {
    pub(crate) fn frame(books: &Books) -> Self {
        Self { token: Token::new(books), is_proof: false }
    }

    pub(crate) fn proof(books: &Books) -> Self {
        Self { token: Token::new(books), is_proof: true }
    }
}

/// A memory window that opens nothing, and the key that it had last.
#[derive(Debug)]
pub(crate) struct Window(pub(crate) RemoteKey);

/// A window and the payload that it opens.
#[derive(Debug)]
pub(crate) struct Binding {
    pub(crate) key: RemoteKey,
    pub(crate) payload: u64,
    pub(crate) state: BindState,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BindState {
    Unbound,
    Bound,
    Dead,
}

impl Payload for OfferedFrame {
    type Binding = Binding;

    /// The address says which payload it is.
    fn remote(&self) -> RemoteMemory {
        RemoteMemory { address: self.token.id, key: RemoteKey(0) }
    }

    fn bind(&self, window: Window) -> Binding {
        let Window(RemoteKey(last)) = window;
        Binding { key: RemoteKey(last + 1), payload: self.token.id, state: BindState::Unbound }
    }

    fn describe(&self, _: &[u8], memory: RemoteMemory) -> Rts {
        let segments = vec![RtsSegment { memory, len: OFFERED_LEN - HEADER_LEN as u64 }];
        Rts { head: vec![1; HEADER_LEN], segments }
    }

    fn written_len(&self) -> usize {
        HEADER_LEN
    }

    fn is_proof(&self) -> bool {
        self.is_proof
    }
}

impl Bind for Binding {
    type Window = Window;

    fn remote(&self) -> RemoteMemory {
        RemoteMemory { address: self.payload, key: self.key }
    }

    fn handle_invalidated(&mut self, key: RemoteKey) -> bool {
        let is_ours = self.state == BindState::Bound && key == self.key;
        if is_ours {
            self.state = BindState::Dead;
        }
        is_ours
    }

    fn into_window(self) -> Result<Window, Self> {
        match self.state {
            BindState::Bound => Err(self),
            BindState::Unbound | BindState::Dead => Ok(Window(self.key)),
        }
    }
}

/// Memory that READs fill.
pub(crate) type Sink = Rc<(Token, usize)>;

/// The device's READ bytes.
#[derive(Debug)]
pub(crate) struct Share {
    pub(crate) max: u64,
    pub(crate) taken: Rc<Cell<u64>>,
}

/// A part of it.
#[derive(Debug)]
pub(crate) struct Turn {
    len: u64,
    taken: Rc<Cell<u64>>,
}

impl Share {
    /// A part for a connection that has waited; there may be less room than that, as when others
    /// have had it.
    pub(crate) fn turn(&self, len: u64) -> Turn {
        self.taken.set(self.taken.get() + len);
        Turn { len, taken: Rc::clone(&self.taken) }
    }
}

impl ReadShare for Share {
    type Permit = Turn;

    fn try_take(&self, len: u64) -> Option<Turn> {
        (self.taken.get() + len <= self.max).then(|| self.turn(len))
    }

    fn split(permit: &mut Turn, len: u64) -> Option<Turn> {
        permit.len = permit.len.checked_sub(len)?;
        Some(Turn { len, taken: Rc::clone(&permit.taken) })
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.taken.set(self.taken.get() - self.len);
    }
}

/// The buffers of scripts.
#[derive(Debug)]
pub(crate) struct ScriptBuffers;

impl Buffers for ScriptBuffers {
    type Slot = Slot;
    type Permit = Token;
    type Payload = OfferedFrame;
    type Binding = Binding;
    type Sink = Sink;
    type Share = Share;
}

/// A request of the device's.
#[derive(Debug)]
pub(crate) enum Request {
    Control { slot: Slot, len: usize },
    Message { slot: Slot, len: usize, _permit: Token },
    Bind(Binding),
    Invalidate(Binding),
    Read(Chunk<Sink>),
}

/// One queue pair: what is not posted, and what has not completed.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    pub(crate) batch: VecDeque<Request>,
    pub(crate) posted: VecDeque<Request>,
}
