//! The built command `farcall` against servers of farcall and of tonic, on loopback.

mod benches;
mod calls;
mod documents;
mod grpcurl_lines;
mod hostile;
mod pings;
mod plugin;
mod program;
mod schemas;
mod servers;
mod targets;
mod tops;
