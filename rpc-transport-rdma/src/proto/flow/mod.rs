//! Flow control: no message ever finds the receive queue of its peer empty.
//!
//! `credits` are the two ends of one connection; `quota` divides a receive queue between its
//! connections by a dynamic threshold; `window` holds a connection's part of it for its credits.

pub(crate) mod credits;
pub(crate) mod quota;
pub(crate) mod window;
