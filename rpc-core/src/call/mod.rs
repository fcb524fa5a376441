//! The description of one call, on either side: its options, its metadata, and the marks on its
//! status.

pub(crate) mod execution;
pub(crate) mod log;
pub(crate) mod metadata;
pub(crate) mod options;
pub(crate) mod refusal;
