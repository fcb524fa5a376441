//! `cargo xtask suite`: every behaviour over every transport, and one table of them all.
//!
//! `transport` says what is run, `report` reads what the programs wrote down, `table` shows it.

mod report;
mod run;
mod table;
mod transport;

pub(crate) use run::run;
pub(crate) use transport::Transport;
