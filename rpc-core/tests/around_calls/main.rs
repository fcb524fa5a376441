//! What users put around calls: timeouts, layers, balancers and callers of any type.

mod numbers;
mod serving;
mod unary_timeout;
