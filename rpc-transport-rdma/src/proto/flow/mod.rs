//! Flow control: no message ever finds the receive queue of its peer empty.
//!
//! `credits` are the two ends of one connection; `window` holds a connection's part of a receive
//! queue for its credits, as `quota::slots` divides that between connections.

pub(crate) mod credits;
pub(crate) mod window;
