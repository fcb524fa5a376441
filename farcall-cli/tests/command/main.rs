//! The built command `farcall` against servers of farcall and of tonic, on loopback.

mod benches;
mod calls;
mod devices;
#[cfg(target_os = "linux")]
mod doctor;
mod documents;
mod explains;
#[cfg(target_os = "linux")]
mod fallbacks;
mod grpcurl_lines;
mod hostile;
mod peers;
mod pings;
mod plugin;
mod program;
mod proxies;
mod schemas;
mod servers;
mod taps;
mod targets;
mod tops;
