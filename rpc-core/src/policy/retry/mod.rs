//! Whether a call that failed is made again, and when: gRPC's retry design (A6), by its names.
//!
//! Pure: time and chance are arguments, and who makes the calls is `client::attempts`. A policy
//! says how many attempts there are and after which statuses. [`retries`] makes them one after
//! another, [`hedges`] side by side. [`throttling`] stops both when too much fails.
//!
//! What differs from gRPC: its clients repeat whatever a policy names. Here a call is repeated only
//! if that can do no harm: its method is idempotent, or no handler has seen it.

pub mod codes;
pub mod config;
pub mod hedges;
pub mod pushback;
pub mod retries;
pub mod throttling;

use codes::Codes;
use pushback::Pushback;
use tonic::Code;

/// An attempt that ended with a status other than OK.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Failure {
    /// Its code.
    pub code: Code,
    /// What the server says of another attempt.
    pub pushback: Pushback,
    /// Whether one more attempt can do no harm.
    pub is_repeatable: bool,
}

impl Failure {
    /// Whether a policy that names `codes` makes another attempt after it.
    fn may_be_repeated(&self, codes: Codes) -> bool {
        self.is_repeatable && codes.contains(self.code) && self.pushback != Pushback::Stop
    }

    /// Whether it counts against the server: its code is one of the policy's, or the server wants
    /// no more attempts. Others say nothing of the server, `INVALID_ARGUMENT` for one.
    #[must_use]
    pub fn counts(&self, codes: Codes) -> bool {
        codes.contains(self.code) || self.pushback == Pushback::Stop
    }
}
