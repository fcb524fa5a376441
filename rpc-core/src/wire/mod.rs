//! The wire format, as values: nothing here reads a socket, a clock or a message's payload.
//!
//! A connection opens with a [`hello`] each way. After it, everything is a *frame*:
//!
//! | part | length | what |
//! |---|---|---|
//! | [`header`] | 32 | fixed, little-endian |
//! | block | `metadata_len` | [`metadata`] or a response's [`outcome`]; absent when empty |
//! | message | `message_len` | the protobuf encoding |
//!
//! A unary call is one frame each way. How a frame travels (whole, in pieces, pulled by READ) is
//! its transport's business.

mod error;
mod foreign;
mod frame_kind;
pub mod header;
pub mod hello;
pub(crate) mod messages;
pub mod metadata;
pub mod outcome;

pub use error::{PeerText, ProtocolError};
pub use foreign::{MAGIC, Spoken};
pub use frame_kind::FrameKind;
pub use header::{FrameHeader, HEADER_LEN, MESSAGE_LEN_LEN};
