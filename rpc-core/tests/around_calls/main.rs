//! Code of users around calls: timeouts, layers, balancers and callers of any type.
#![allow(clippy::unwrap_used, reason = "a failed test is how these tests report")]

mod balance;
mod dyn_caller;
mod layers;
mod numbers;
mod path;
mod serving;
mod stub_options;
mod unary_timeout;
