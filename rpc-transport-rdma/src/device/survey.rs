//! A survey of a host's devices, for programs that explain why RDMA cannot be had.
//!
//! A device that cannot be opened is part of the survey, with the reason.

use std::error::Error;

use rpc_core::connect::{Declined, Obstacle};

use super::found_port::query_ports;
use crate::sys::provider::{Device, PortState, VerbsError};

/// A device as libibverbs and its driver describe it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeviceSurvey {
    /// Name of the device, for example `mlx5_0`.
    pub name: String,
    /// Why the device cannot be opened, or a port does not answer.
    pub fault: Option<String>,
    /// Why READs that the device reports as complete are not trusted.
    pub read_defect: Option<String>,
    /// READs that one queue pair can have outstanding in either direction (`max_rd_atomic`).
    pub max_reads: u8,
    /// Receives of one shared receive queue; 0 if the device has no such queues.
    pub max_shared_receives: u32,
    /// Memory windows; 0 if the device has none.
    pub max_windows: u32,
    /// The ports that answer.
    pub ports: Vec<PortSurvey>,
}

/// A port of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct PortSurvey {
    /// Number of the port; ports count from 1.
    pub number: u8,
    /// True if it carries traffic.
    pub is_active: bool,
    /// Payload of a packet, in bytes.
    pub active_mtu: u16,
}

/// An error of a survey: the devices cannot even be listed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct SurveyError {
    reason: String,
    is_library_missing: bool,
}

impl SurveyError {
    /// An error with this text.
    #[doc(hidden)]
    #[must_use]
    pub fn new(reason: impl Into<String>) -> Self {
        Self { reason: reason.into(), is_library_missing: false }
    }

    /// Returns true if libibverbs is not installed.
    #[must_use]
    pub fn is_library_missing(&self) -> bool {
        self.is_library_missing
    }
}

#[doc(hidden)]
impl From<Declined> for SurveyError {
    fn from(declined: Declined) -> Self {
        let is_library_missing = declined.obstacle == Obstacle::NoLibrary;
        Self { reason: declined.reason, is_library_missing }
    }
}

#[doc(hidden)]
impl From<VerbsError> for SurveyError {
    fn from(error: VerbsError) -> Self {
        let is_library_missing = matches!(error, VerbsError::Library { is_missing: true, .. });
        Self { reason: with_causes(&error), is_library_missing }
    }
}

impl DeviceSurvey {
    /// Surveys the device of that name, or records why it cannot be opened.
    pub(crate) fn new(name: String, opened: Result<Device, VerbsError>) -> Self {
        let mut survey = Self {
            name,
            fault: None,
            read_defect: None,
            max_reads: 0,
            max_shared_receives: 0,
            max_windows: 0,
            ports: Vec::new(),
        };
        let device = match opened {
            Ok(device) => device,
            Err(error) => return Self { fault: Some(with_causes(&error)), ..survey },
        };
        let attributes = device.attributes();
        survey.read_defect = device.read_defect().map(str::to_owned);
        survey.max_reads = attributes.reads_in_max.min(attributes.reads_out_max);
        survey.max_shared_receives = attributes.shared_receives_max;
        survey.max_windows = attributes.windows_max;
        let (ports, error) = query_ports(&device);
        survey.fault = error.map(|error| with_causes(&error));
        let ports = ports.iter().map(|port| PortSurvey {
            number: port.port,
            is_active: port.attributes.state == PortState::Active,
            active_mtu: port.attributes.active_mtu.bytes(),
        });
        survey.ports = ports.collect();
        survey
    }
}

/// An error with its causes, in one line.
fn with_causes(error: &dyn Error) -> String {
    let (mut text, mut cause) = (error.to_string(), error.source());
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}
