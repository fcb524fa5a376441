//! libibverbs, opened at run time.
//!
//! A program that links with libibverbs does not start on a host without it. This one starts
//! anywhere, and opens the library when the first endpoint asks for RDMA.
//!
//! # Claims
//!
//! - **L1 (opening).** `dlopen` runs the initialisers of the library and of what it needs. These
//!   are the initialisers that the program loader would run for a program that links with it.
//! - **L2 (signatures).** A symbol of `libibverbs.so.1` has the signature that is listed here.
//!   The number in the soname promises it. Where the library has a symbol in several versions,
//!   `dlsym` gives the default one, which is the newest (`IBVERBS_1.1` or later), and never
//!   `IBVERBS_1.0`, whose structures differ. A test compares both.
//! - **L3 (lifetime).** The library is never closed, so that a pointer into it stays good.

use std::ffi::{c_char, c_int, c_uint, c_void};

use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};
use parking_lot::Mutex;

use super::*;
use crate::sys::async_event::AsyncEventRecord;
use crate::sys::gid_table::RawGidEntry;

/// The library's soname.
const NAME: &str = "libibverbs.so.1";

/// Why libibverbs cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LoadError {
    /// There is none.
    #[error("{NAME} is not installed (Debian: libibverbs1 ibverbs-providers)")]
    NotInstalled,
    /// There is one, and the loader refuses it or something that it needs.
    #[error("{NAME} cannot be loaded: {0}")]
    Unusable(String),
    /// There is one that is older than rdma-core 32, which has all that is needed.
    #[error("{NAME} has no {0}: rdma-core 32 or later is needed")]
    TooOld(&'static str),
}

impl LoadError {
    /// Parses the loader's message. It names the missing file, which may be another one that
    /// libibverbs needs.
    fn of(message: String) -> Self {
        let is_missing = message.contains("No such file") || message.contains("not found");
        let names_itself = message.split(':').next().is_some_and(|file| file.contains(NAME));
        if is_missing && names_itself { Self::NotInstalled } else { Self::Unusable(message) }
    }
}

/// Returns true if the library is not installed.
pub(crate) fn is_missing(error: &LoadError) -> bool {
    matches!(error, LoadError::NotInstalled)
}

/// Opens libibverbs, unless this process has.
///
/// # Errors
///
/// [`LoadError`]; a later call tries again, because an administrator may install the library
/// meanwhile.
pub(crate) fn load() -> Result<Verbs, LoadError> {
    static LOADED: Mutex<Option<Verbs>> = Mutex::new(None);
    let mut loaded = LOADED.lock();
    if let Some(verbs) = *loaded {
        return Ok(verbs);
    }
    // SAFETY: L1.
    let library = unsafe { Library::open(Some(NAME), RTLD_NOW | RTLD_LOCAL) }
        .map_err(|error| LoadError::of(words_of(&error)))?;
    let table = Table::find(&library)?;
    // L3.
    std::mem::forget(library);
    Ok(*loaded.insert(Verbs(Box::leak(Box::new(table)))))
}

fn words_of(error: &libloading::Error) -> String {
    std::error::Error::source(error).map_or_else(|| error.to_string(), ToString::to_string)
}

/// The calls of libibverbs: a value of this type shows that the library is open.
#[derive(Clone, Copy)]
pub(crate) struct Verbs(&'static Table);

impl std::fmt::Debug for Verbs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(NAME)
    }
}

macro_rules! table {
    ($(fn $name:ident($($argument:ident: $type:ty),* $(,)?) -> $result:ty;)*) => {
        /// The addresses of the library's functions.
        struct Table {
            $($name: unsafe extern "C" fn($($type),*) -> $result,)*
            ibv_query_port: unsafe extern "C" fn(*mut ibv_context, u8, *mut ibv_port_attr) -> c_int,
            ibv_get_async_event:
                unsafe extern "C" fn(*mut ibv_context, *mut AsyncEventRecord) -> c_int,
            ibv_ack_async_event: unsafe extern "C" fn(*mut AsyncEventRecord),
            ibv_query_gid_table: QueryGidTable,
        }

        impl Table {
            fn find(library: &Library) -> Result<Self, LoadError> {
                Ok(Self {
                    $($name: find(library, stringify!($name))?,)*
                    ibv_query_port: find(library, "ibv_query_port")?,
                    ibv_get_async_event: find(library, "ibv_get_async_event")?,
                    ibv_ack_async_event: find(library, "ibv_ack_async_event")?,
                    ibv_query_gid_table: find(library, "_ibv_query_gid_table")?,
                })
            }
        }

        impl Verbs {
            $(
                /// # Safety
                ///
                /// The manual page of this name has the conditions.
                pub(crate) unsafe fn $name(self, $($argument: $type),*) -> $result {
                    // SAFETY: L2, and the caller's promise.
                    unsafe { (self.0.$name)($($argument),*) }
                }
            )*
        }

        #[cfg(test)]
        const NAMES: &[&str] = &[
            $(stringify!($name),)*
            "ibv_query_port", "ibv_get_async_event", "ibv_ack_async_event",
        ];
    };
}
with_calls!(table);

type QueryGidTable =
    unsafe extern "C" fn(*mut ibv_context, *mut RawGidEntry, usize, u32, usize) -> isize;

/// Finds a symbol as the function that the caller's type says.
fn find<T: Copy>(library: &Library, name: &'static str) -> Result<T, LoadError> {
    // SAFETY: L2: `Table` gives each name its signature.
    let symbol = unsafe { library.get::<T>(name.as_bytes()) };
    symbol.map(|symbol| *symbol).map_err(|_| LoadError::TooOld(name))
}

/// The error for a function that a structure from libibverbs does not have.
const NOT_SUPPORTED: c_int = libc::EOPNOTSUPP;

/// The calls that the list leaves out, and those that the header defines inline: they go straight
/// to the driver.
#[allow(clippy::unused_self)]
impl Verbs {
    /// # Safety
    ///
    /// The context is open, and the attributes are live. The call fills their part before
    /// `port_cap_flags2`.
    pub(crate) unsafe fn ibv_query_port(
        self,
        context: *mut ibv_context,
        port: u8,
        attributes: *mut ibv_port_attr,
    ) -> c_int {
        // SAFETY: L2, and the caller's promise.
        unsafe { (self.0.ibv_query_port)(context, port, attributes) }
    }

    /// # Safety
    ///
    /// The context is open, and the record is live.
    pub(crate) unsafe fn ibv_get_async_event(
        self,
        context: *mut ibv_context,
        record: *mut AsyncEventRecord,
    ) -> c_int {
        // SAFETY: L2, and the caller's promise.
        unsafe { (self.0.ibv_get_async_event)(context, record) }
    }

    /// # Safety
    ///
    /// The event was taken and is not acknowledged yet.
    pub(crate) unsafe fn ibv_ack_async_event(self, record: *mut AsyncEventRecord) {
        // SAFETY: L2, and the caller's promise.
        unsafe { (self.0.ibv_ack_async_event)(record) }
    }

    /// # Safety
    ///
    /// The context is open, and there is room for `max` entries of `entry_len` bytes.
    pub(crate) unsafe fn ibv_query_gid_table(
        self,
        context: *mut ibv_context,
        entries: *mut RawGidEntry,
        max: usize,
        entry_len: usize,
    ) -> isize {
        // SAFETY: L2, and the caller's promise. There are no flags yet.
        unsafe { (self.0.ibv_query_gid_table)(context, entries, max, 0, entry_len) }
    }

    /// # Safety
    ///
    /// The domain is allocated. Null means a failure, with `errno`.
    pub(crate) unsafe fn ibv_alloc_mw(self, domain: *mut ibv_pd, kind: c_uint) -> *mut ibv_mw {
        // SAFETY: the caller's promise; a domain keeps its context.
        let context = unsafe { (*domain).context };
        // SAFETY: as above.
        match unsafe { (*context).ops.alloc_mw } {
            // SAFETY: the caller's promise.
            Some(allocate) => unsafe { allocate(domain, kind) },
            None => {
                nix::errno::Errno::EOPNOTSUPP.set();
                std::ptr::null_mut()
            }
        }
    }

    /// # Safety
    ///
    /// The window is allocated, and not used afterwards.
    pub(crate) unsafe fn ibv_dealloc_mw(self, window: *mut ibv_mw) -> c_int {
        // SAFETY: the caller's promise; a window keeps its context.
        let context = unsafe { (*window).context };
        // SAFETY: as above.
        match unsafe { (*context).ops.dealloc_mw } {
            // SAFETY: the caller's promise.
            Some(deallocate) => unsafe { deallocate(window) },
            None => NOT_SUPPORTED,
        }
    }

    /// # Safety
    ///
    /// The queue exists, and there is room for `count` completions.
    pub(crate) unsafe fn ibv_poll_cq(
        self,
        queue: *mut ibv_cq,
        count: c_int,
        completions: *mut ibv_wc,
    ) -> c_int {
        // SAFETY: the caller's promise; a queue keeps its context.
        let context = unsafe { (*queue).context };
        // SAFETY: as above.
        match unsafe { (*context).ops.poll_cq } {
            // SAFETY: the caller's promise.
            Some(poll) => unsafe { poll(queue, count, completions) },
            None => -NOT_SUPPORTED,
        }
    }

    /// # Safety
    ///
    /// The queue exists.
    pub(crate) unsafe fn ibv_req_notify_cq(self, queue: *mut ibv_cq, solicited: c_int) -> c_int {
        // SAFETY: the caller's promise; a queue keeps its context.
        let context = unsafe { (*queue).context };
        // SAFETY: as above.
        match unsafe { (*context).ops.req_notify_cq } {
            // SAFETY: the caller's promise.
            Some(notify) => unsafe { notify(queue, solicited) },
            None => NOT_SUPPORTED,
        }
    }

    /// # Safety
    ///
    /// The queue exists; the chain and the memory that it names are live.
    pub(crate) unsafe fn ibv_post_srq_recv(
        self,
        queue: *mut ibv_srq,
        chain: *mut ibv_recv_wr,
        refused: *mut *mut ibv_recv_wr,
    ) -> c_int {
        // SAFETY: the caller's promise; a queue keeps its context.
        let context = unsafe { (*queue).context };
        // SAFETY: as above.
        match unsafe { (*context).ops.post_srq_recv } {
            // SAFETY: the caller's promise.
            Some(post) => unsafe { post(queue, chain, refused) },
            None => refuse_all(refused, chain),
        }
    }

    /// # Safety
    ///
    /// The queue pair exists; the chain and the memory that it names are live.
    pub(crate) unsafe fn ibv_post_send(
        self,
        queue_pair: *mut ibv_qp,
        chain: *mut ibv_send_wr,
        refused: *mut *mut ibv_send_wr,
    ) -> c_int {
        // SAFETY: the caller's promise; a queue pair keeps its context.
        let context = unsafe { (*queue_pair).context };
        // SAFETY: as above.
        match unsafe { (*context).ops.post_send } {
            // SAFETY: the caller's promise.
            Some(post) => unsafe { post(queue_pair, chain, refused) },
            None => refuse_all(refused, chain),
        }
    }
}

/// Says that a driver took nothing of a chain.
fn refuse_all<T>(refused: *mut *mut T, chain: *mut T) -> c_int {
    // SAFETY: both callers were promised a live place for what is refused.
    unsafe { *refused = chain };
    NOT_SUPPORTED
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_without_the_library_is_told_what_to_install() {
        let glibc = "libibverbs.so.1: cannot open shared object file: No such file or directory";
        let musl = "Error loading shared library libibverbs.so.1: No such file or directory";
        for text in [glibc, musl] {
            let error = LoadError::of(text.to_owned());
            assert!(matches!(error, LoadError::NotInstalled), "{error:?}");
            let hint = "libibverbs.so.1 is not installed (Debian: libibverbs1 ibverbs-providers)";
            assert_eq!(error.to_string(), hint);
        }
    }

    #[test]
    fn another_reason_is_shown_in_the_loaders_words() {
        let needed = "libnl-3.so.200: cannot open shared object file: No such file or directory";
        let foreign = "/lib/libibverbs.so.1: wrong ELF class: ELFCLASS32";
        for text in [needed, foreign] {
            let error = LoadError::of(text.to_owned()).to_string();
            assert!(error.contains(text), "{error}");
        }
    }

    #[test]
    #[cfg(target_env = "gnu")]
    #[cfg_attr(miri, ignore = "opens a library")]
    fn symbols_are_never_those_of_the_first_version() {
        use std::ffi::CString;
        load().expect("this test needs libibverbs1");
        let library = CString::new(NAME).unwrap();
        // SAFETY: L1: the library is open already.
        let handle = unsafe { libc::dlopen(library.as_ptr(), libc::RTLD_NOW) };
        assert!(!handle.is_null());
        let mut in_two = 0;
        for name in NAMES {
            let symbol = CString::new(*name).unwrap();
            // SAFETY: the handle is open, and the names have ends.
            let found = unsafe { libc::dlsym(handle, symbol.as_ptr()) };
            let versioned = |version: &std::ffi::CStr| {
                // SAFETY: as above.
                unsafe { libc::dlvsym(handle, symbol.as_ptr(), version.as_ptr()) }
            };
            let (first, second) = (versioned(c"IBVERBS_1.0"), versioned(c"IBVERBS_1.1"));
            if !first.is_null() && !second.is_null() {
                assert_eq!(found, second, "{name}");
                assert_ne!(found, first, "{name}");
                in_two += 1;
            }
        }
        assert!(in_two > 15, "only {in_two} symbols have both versions");
    }
}
