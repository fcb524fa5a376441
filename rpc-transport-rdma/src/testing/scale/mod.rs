//! The scale simulation: credits and receive slots of up to 100,000 connections to one server.
//!
//! So many whole connections do not fit into one process: a queue pair alone, on a simulated device
//! too, takes more than the machines that decide who may send. So these are driven alone, and they
//! are the ones that connections have: `FlowWindow` at both ends, `SharedQuota` and `Watermark` of
//! each lane, and the choice of a lane. What is modelled around them is what a device and a cable
//! do: a message takes a while, waits in a slot of the lane's queue, and is reaped in its turn.
//!
//! Time is counted in ticks, and chance comes from a seed: the same `Plan` gives the same
//! `Measured`. What must never happen is asserted with every message: that one finds no slot,
//! that a peer has more on its way than it was promised, that more is promised than there is.
//!
//! `forecast` is a model of the same in a few lines of arithmetic, to be held against it.
//!
//! Deliberately not here: payloads, large messages, send queues and processor time.

mod end;
mod lane;
mod link;
mod measured;
mod plan;
mod simulation;

#[cfg(test)]
mod tests;

pub use measured::{Forecast, Measured, forecast};
pub use plan::{Mix, Plan, Shape};

/// Carries out a plan.
///
/// # Panics
///
/// Panics if a machine breaks its rules: a message finds no slot, a peer sends what it was not
/// promised, or a newcomer gets no answer.
#[must_use]
pub fn simulate(plan: &Plan) -> Measured {
    simulation::Simulation::new(plan).run()
}
