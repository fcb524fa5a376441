//! What users put around calls: timeouts, layers, balancers and callers of any type.

mod balance;
mod layers;
mod numbers;
mod serving;
mod unary_timeout;
