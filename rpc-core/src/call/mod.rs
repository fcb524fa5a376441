//! What describes one call, on either side: its method, its deadline, and the marks on its status.

pub(crate) mod deadline;
pub(crate) mod descriptor;
mod inherited;
pub(crate) mod log;
pub(crate) mod may_have_executed;
pub(crate) mod message_limits;
pub(crate) mod not_executed;
pub(crate) mod refusal;
pub(crate) mod trailers;
