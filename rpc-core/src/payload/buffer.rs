//! Buffers that an application fills and a transport sends from without a copy.
//!
//! A large `bytes` field is copied once on its way out, because a device reads registered memory
//! only. A message whose field lies in a [`Buffer`] is sent from there, if the buffer belongs to
//! the device that sends it. A handler's answer goes out where its call came in, and a channel has
//! a connection, so that both know the right one; for all other code the device with registered
//! memory offers it here, and the source with the most connections is asked first. Where there is
//! none, or none left, a buffer is plain memory: everything works the same, and the field is
//! copied.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, OnceLock, Weak};

use bytes::Bytes;
use futures::future::BoxFuture;
use parking_lot::{Mutex, MutexGuard};

use crate::payload::pool::{Pool, PoolBuffer};

/// Plain memory that is kept for the next buffer.
const PLAIN_KEPT_BYTES_MAX: usize = 64 << 20;

/// Something that has memory which it can send from.
pub trait BufferSource: fmt::Debug + Send + Sync {
    /// Of several sources the one with the highest is asked first: its connections.
    fn rank(&self) -> usize;

    /// A buffer of exactly `len` bytes; `None` when there is none without waiting for others.
    fn buffer(self: Arc<Self>, len: usize) -> BoxFuture<'static, Option<Box<dyn BufferMemory>>>;
}

/// Memory of a [`BufferSource`].
pub trait BufferMemory: AsRef<[u8]> + AsMut<[u8]> + fmt::Debug + Send + 'static {}

impl<T: AsRef<[u8]> + AsMut<[u8]> + fmt::Debug + Send + 'static> BufferMemory for T {}

static SOURCES: Mutex<Vec<Weak<dyn BufferSource>>> = Mutex::new(Vec::new());

fn sources() -> MutexGuard<'static, Vec<Weak<dyn BufferSource>>> {
    SOURCES.lock()
}

/// Offers a source's memory to [`buffer`](crate::buffer()), for as long as the source exists.
pub fn offer_source(source: &Arc<dyn BufferSource>) {
    let mut sources = sources();
    sources.retain(|source| source.strong_count() > 0);
    sources.push(Arc::downgrade(source));
}

/// A buffer of `source`, or plain memory: any other device would be the wrong one.
pub(crate) async fn buffer_of(source: Option<Arc<dyn BufferSource>>, len: usize) -> Buffer {
    if let Some(source) = source
        && let Some(memory) = source.buffer(len).await
    {
        return Buffer(Memory::Registered(memory));
    }
    plain(len)
}

/// A buffer of the source with the most connections that has one, or plain memory.
pub(crate) async fn any_buffer(len: usize) -> Buffer {
    let mut sources: Vec<_> = sources().iter().filter_map(Weak::upgrade).collect();
    sources.sort_by_key(|source| std::cmp::Reverse(source.rank()));
    for source in sources {
        if let Some(memory) = source.buffer(len).await {
            return Buffer(Memory::Registered(memory));
        }
    }
    plain(len)
}

fn plain(len: usize) -> Buffer {
    static PLAIN: OnceLock<Pool> = OnceLock::new();
    let plain = PLAIN.get_or_init(|| Pool::new(PLAIN_KEPT_BYTES_MAX));
    Buffer(Memory::Plain(plain.take(len)))
}

/// The source of a connection, for as long as that exists. It says nothing about what a connection
/// is, so that all are equal.
#[derive(Clone, Default)]
pub(crate) struct Buffers(Option<Weak<dyn BufferSource>>);

impl Buffers {
    pub(crate) fn of(source: Option<&Arc<dyn BufferSource>>) -> Self {
        Self(source.map(Arc::downgrade))
    }

    /// The source, if its connection exists.
    pub(crate) fn source(&self) -> Option<Arc<dyn BufferSource>> {
        self.0.as_ref()?.upgrade()
    }
}

impl PartialEq for Buffers {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Buffers {}

impl fmt::Debug for Buffers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "registered" } else { "plain" })
    }
}

/// Memory that an application fills; made by [`buffer`](crate::buffer()).
#[derive(Debug)]
pub struct Buffer(Memory);

#[derive(Debug)]
enum Memory {
    Registered(Box<dyn BufferMemory>),
    Plain(PoolBuffer),
}

impl Buffer {
    /// Returns true if a device can read it. Plain memory is copied when it is sent.
    #[must_use]
    pub fn is_registered(&self) -> bool {
        matches!(self.0, Memory::Registered(_))
    }

    /// Turns it into `Bytes`, without a copy. Slices of them are sent without one too.
    #[must_use]
    pub fn freeze(self) -> Bytes {
        match self.0 {
            Memory::Registered(memory) => Bytes::from_owner(Owned(memory)),
            Memory::Plain(memory) => memory.freeze(),
        }
    }
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.0 {
            Memory::Registered(memory) => (**memory).as_ref(),
            Memory::Plain(memory) => memory,
        }
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        match &mut self.0 {
            Memory::Registered(memory) => (**memory).as_mut(),
            Memory::Plain(memory) => memory,
        }
    }
}

/// A box as the owner of bytes.
struct Owned(Box<dyn BufferMemory>);

impl AsRef<[u8]> for Owned {
    fn as_ref(&self) -> &[u8] {
        (*self.0).as_ref()
    }
}

impl From<Buffer> for Bytes {
    fn from(buffer: Buffer) -> Self {
        buffer.freeze()
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    #[derive(Debug)]
    struct Source {
        rank: usize,
        len_max: usize,
    }

    impl BufferSource for Source {
        fn rank(&self) -> usize {
            self.rank
        }

        fn buffer(
            self: Arc<Self>,
            len: usize,
        ) -> BoxFuture<'static, Option<Box<dyn BufferMemory>>> {
            let filled = u8::try_from(self.rank).unwrap();
            let memory = (len <= self.len_max).then(|| vec![filled; len]);
            Box::pin(async move { memory.map(|memory| Box::new(memory) as Box<_>) })
        }
    }

    fn take(len: usize) -> Buffer {
        any_buffer(len).now_or_never().expect("these sources wait for nothing")
    }

    /// One test, because sources are the process's.
    #[test]
    fn the_busiest_source_with_room_is_used_or_plain_memory() {
        let mut plain = take(100);
        assert!(!plain.is_registered());
        plain.fill(5);
        assert_eq!(plain.freeze()[..], [5; 100]);

        let idle: Arc<dyn BufferSource> = Arc::new(Source { rank: 1, len_max: 1000 });
        let busy: Arc<dyn BufferSource> = Arc::new(Source { rank: 2, len_max: 100 });
        offer_source(&idle);
        offer_source(&busy);
        assert!(take(100).is_registered());
        assert_eq!((take(100)[0], take(1000)[0]), (2, 1));
        assert!(!take(1001).is_registered());
        drop((idle, busy));
        assert!(!take(100).is_registered(), "a source that is gone lends nothing");
        assert_eq!(Bytes::from(take(0)).len(), 0);
    }
}
