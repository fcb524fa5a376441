//! A peer's violation of the protocol, as in [`CloseReason::Protocol`].
//!
//! [`CloseReason::Protocol`]: crate::CloseReason::Protocol

pub use rpc_core::wire::{FrameKind, PeerText, ProtocolError};
