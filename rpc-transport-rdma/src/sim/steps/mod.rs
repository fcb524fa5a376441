//! What happens on a simulated network, one step of one object at a time.

mod completions;
mod receives;
mod regions;
mod requester;
mod responder;
mod scripted;
mod sends;
mod windows;
