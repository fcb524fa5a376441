//! What happens on a simulated network, one step of one object at a time.

mod completions;
mod memory;
mod receives;
mod requester;
mod responder;
mod scripted;
mod sends;
