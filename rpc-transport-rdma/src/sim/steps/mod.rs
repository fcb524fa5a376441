//! The steps of a simulated network, one of one object at a time.

mod completions;
mod departures;
mod memory;
mod receives;
mod requester;
mod responder;
mod scripted;
mod sends;
