//! What a peer did that breaks the protocol, as [`ConnectError::Protocol`] has it.
//!
//! [`ConnectError::Protocol`]: crate::ConnectError::Protocol

pub use rpc_core::wire::{FrameKind, PeerText, ProtocolError};
