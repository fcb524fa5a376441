//! Serving: the connections of a server, how long each lives, and what they share.

pub(in crate::server) mod gateway;
pub(in crate::server) mod life;
pub(in crate::server) mod limits;
pub(in crate::server) mod run;
pub(in crate::server) mod shared;
