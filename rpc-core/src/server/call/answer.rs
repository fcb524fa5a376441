//! The parts of a response frame.

use crate::payload::encode::Encode;
use crate::transport::frames::Parts;
use crate::wire::{FrameHeader, FrameKind};

/// The parts of a response frame.
#[derive(Debug)]
pub(crate) struct Answer<'a> {
    pub(in crate::server) code: u16,
    /// How many frames the answer has before this one.
    pub(in crate::server) seq: u64,
    pub(in crate::server) is_not_executed: bool,
    pub(in crate::server) is_deflated: bool,
    pub(in crate::server) block: Vec<u8>,
    pub(in crate::server) message: Option<&'a dyn Encode>,
}

impl Answer<'_> {
    /// An answer without block and message.
    pub(in crate::server) fn bare(code: u16, seq: u64) -> Self {
        let (is_not_executed, is_deflated) = (false, false);
        Self { code, seq, is_not_executed, is_deflated, block: Vec::new(), message: None }
    }

    /// The frame that carries the answer to the call `id`.
    pub(in crate::server) fn parts(&self, id: u64) -> Parts<'_> {
        let mut header = FrameHeader::bare(FrameKind::Response, id);
        header.selector = self.code;
        header.argument = self.seq;
        header.is_not_executed = self.is_not_executed;
        header.is_deflated = self.is_deflated;
        Parts { header, block: &self.block, message: self.message }
    }
}
