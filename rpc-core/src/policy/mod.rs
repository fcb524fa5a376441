//! Policies for connecting, pinging, retrying and closing, as pure machines: time is an argument.

pub mod backoff;
pub mod breaker;
pub mod failover;
pub mod keepalive;
pub mod lifetime;
pub mod line_limit;
pub mod progress;
pub mod retry;
pub mod retry_config;
