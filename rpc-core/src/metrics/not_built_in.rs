//! Metrics in a build without them: nothing is counted, and nothing takes room.

use tonic::{Code, Status};

use super::RetryKind;
use crate::connect::ConnectionInfo;
use crate::transport::TransportStats;
use crate::{Method, MethodDescriptor};

/// The metrics of the calls of a channel.
#[derive(Debug, Clone, Default)]
pub struct ChannelMeters(());

impl ChannelMeters {
    pub(crate) fn method(&self, _: &Method) -> ClientMeter {
        ClientMeter(())
    }
}

/// The metrics of a call on the client.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct ClientMeter(());

/// The metrics of a call at one server.
#[derive(Debug)]
pub(crate) struct CallMeter(());

/// The metrics of a call of a channel, on its way to its servers.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct MeteredCall(());

impl MeteredCall {
    pub(crate) fn whole(_: ClientMeter) -> Self {
        Self(())
    }

    pub(crate) fn split(&mut self) -> CallMeter {
        CallMeter(())
    }

    pub(crate) fn begin(self) -> CallMeter {
        CallMeter(())
    }
}

impl CallMeter {
    pub(crate) fn is_on(&self) -> bool {
        false
    }

    pub(crate) fn start_attempt(&mut self, _: impl FnOnce() -> usize) {}

    pub(crate) fn follow<T>(&mut self, _: &T) {}

    pub(crate) fn receive(&mut self, _: usize) {}

    pub(crate) fn set_code(&mut self, _: Code) {}

    pub(crate) fn fail_attempt(&mut self, _: &Status) {}

    pub(crate) fn finish<T>(&mut self, _: &Result<T, Status>) {}

    pub(crate) fn take(&mut self) -> Self {
        Self(())
    }
}

/// The metrics of a call on the server.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct ServerMeter(());

impl ServerMeter {
    pub(crate) fn new(_: impl FnOnce() -> Option<&'static MethodDescriptor>) -> Self {
        Self(())
    }

    pub(crate) fn is_counting() -> bool {
        false
    }

    pub(crate) fn is_on(self) -> bool {
        false
    }

    pub(crate) fn started(self) {}

    pub(crate) fn ended(self, _: Code, _: u64, _: u64, _: u64) {}
}

pub(crate) fn retried(_: &Method, _: RetryKind) {}

pub(crate) fn retry_denied(_: &Method, _: RetryKind) {}

pub(crate) fn connection_opened(_: &'static str, _: &ConnectionInfo) {}

pub(crate) fn connection_ended(_: &'static str, _: &'static str, _: TransportStats) {}
