//! The metrics of one call in a build without them.

use tokio::time::Instant;
use tonic::{Code, Status};

use crate::client::connection::Started;
use crate::metrics::ClientMeter;

/// Counts nothing.
#[derive(Debug)]
pub(in crate::client) struct CallMeter(());

/// Counts nothing.
#[derive(Debug, Clone, Copy, Default)]
pub(in crate::client) struct MeteredCall(());

impl MeteredCall {
    pub(in crate::client) fn whole(_: ClientMeter) -> Self {
        Self(())
    }

    pub(in crate::client) fn split(&mut self) -> CallMeter {
        CallMeter(())
    }

    pub(in crate::client) fn begin(self, _: Option<Instant>) -> CallMeter {
        CallMeter(())
    }
}

impl CallMeter {
    pub(in crate::client) fn is_on(&self) -> bool {
        false
    }

    pub(in crate::client) fn start_attempt(&mut self, _: impl FnOnce() -> usize) {}

    pub(in crate::client) fn follow(&mut self, _: &Started) {}

    pub(in crate::client) fn receive(&mut self, _: usize) {}

    pub(in crate::client) fn set_code(&mut self, _: Code) {}

    pub(in crate::client) fn fail_attempt(&mut self, _: &Status) {}

    pub(in crate::client) fn finish<T>(&mut self, _: &Result<T, Status>) {}

    pub(in crate::client) fn take(&mut self) -> Self {
        Self(())
    }
}
