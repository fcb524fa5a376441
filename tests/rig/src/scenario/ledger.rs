//! The service of the scenarios: it writes down what it executes, where a `kill -9` loses nothing.

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use farcall::client::unary;
use farcall::codegen::{HandlerFuture, ServerCall};
use farcall::{
    CallKind, Channel, Idempotency, MethodDescriptor, Request, Response, Service,
    ServiceDescriptor, Status,
};
use tempfile::NamedTempFile;

static SERVICE: ServiceDescriptor = ServiceDescriptor {
    name: "farcall.scenario.Ledger",
    methods: &[
        MethodDescriptor::new(
            "/farcall.scenario.Ledger/Look",
            CallKind::Unary,
            Idempotency::NoSideEffects,
        ),
        MethodDescriptor::new(
            "/farcall.scenario.Ledger/Enter",
            CallKind::Unary,
            Idempotency::Unknown,
        ),
    ],
};

/// The service. All servers of a scenario append to one file, in the kernel's memory: what was
/// written there outlives its writer.
pub(super) struct Ledger {
    book: Arc<Book>,
}

struct Book {
    file: File,
    /// Duration of each call.
    delay: Duration,
}

impl Ledger {
    pub(super) fn open(path: &Path, delay: Duration) -> io::Result<Self> {
        let file = OpenOptions::new().append(true).create(true).open(path)?;
        Ok(Self { book: Arc::new(Book { file, delay }) })
    }
}

impl Service for Ledger {
    fn descriptor(&self) -> &'static ServiceDescriptor {
        &SERVICE
    }

    fn call(&self, method: usize, call: ServerCall) -> HandlerFuture {
        let book = Arc::clone(&self.book);
        call.unary(async move |request: Request<u64>| {
            let number = request.into_inner();
            if method == 1 {
                // Eight bytes at the end of the file, in one call of the kernel.
                (&book.file).write_all(&number.to_le_bytes())?;
            }
            if !book.delay.is_zero() {
                tokio::time::sleep(book.delay).await;
            }
            Ok(Response::new(number))
        })
    }
}

/// Asks for a number: idempotent.
pub(super) async fn look(channel: &Channel, number: u64) -> Result<(), Status> {
    ask(channel, 0, number).await
}

/// Enters a number, which must not happen twice.
pub(super) async fn enter(channel: &Channel, number: u64) -> Result<(), Status> {
    ask(channel, 1, number).await
}

async fn ask(channel: &Channel, method: usize, number: u64) -> Result<(), Status> {
    let request = Request::new(number);
    let reply = unary::<u64, u64>(channel, &SERVICE.methods[method], request).await?.into_inner();
    match reply == number {
        true => Ok(()),
        false => Err(Status::data_loss(format!("the answer to {number} is {reply}"))),
    }
}

/// A file for the servers of one scenario. Dropped, it is deleted.
#[derive(Debug)]
pub(super) struct LedgerFile(NamedTempFile);

impl LedgerFile {
    pub(super) fn new() -> io::Result<Self> {
        NamedTempFile::with_prefix("farcall-scenario-ledger-").map(Self)
    }

    pub(super) fn path(&self) -> &Path {
        self.0.path()
    }

    /// Returns the number of times that each number was entered.
    pub(super) fn entries(&self) -> io::Result<HashMap<u64, u32>> {
        let bytes = std::fs::read(self.path())?;
        let (numbers, _) = bytes.as_chunks();
        let mut entries = HashMap::new();
        for number in numbers {
            *entries.entry(u64::from_le_bytes(*number)).or_insert(0) += 1;
        }
        Ok(entries)
    }
}
