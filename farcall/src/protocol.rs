//! A peer's violation of the protocol, as in [`ConnectError::Protocol`].
//!
//! [`ConnectError::Protocol`]: crate::ConnectError::Protocol

pub use rpc_core::wire::{FrameKind, PeerText, ProtocolError};
