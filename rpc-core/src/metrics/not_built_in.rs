//! Metrics in a build without them: nothing is counted, and nothing takes room.

use std::time::Duration;

use tonic::Code;

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

    pub(crate) fn ended(self, _: Code, _: Duration, _: u64, _: u64) {}
}

pub(crate) fn retried(_: &Method, _: RetryKind) {}

pub(crate) fn retry_denied(_: &Method, _: RetryKind) {}

pub(crate) fn connection_opened(_: &'static str, _: &ConnectionInfo) {}

pub(crate) fn connection_ended(_: &'static str, _: &'static str, _: TransportStats) {}
