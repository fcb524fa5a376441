//! The description of one call, on either side: its options, its metadata, the marks on its status,
//! and an account of its time.

pub(crate) mod execution;
pub(crate) mod explain;
pub(crate) mod explanation;
pub(crate) mod log;
pub(crate) mod metadata;
pub(crate) mod moment;
pub(crate) mod options;
pub(crate) mod refusal;
pub(crate) mod server_times;
