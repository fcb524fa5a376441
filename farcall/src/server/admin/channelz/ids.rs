//! The ids of channelz: numbers that name one thing of the process each.
//!
//! The last three bits are the kind. The rest is a number that is kept elsewhere anyway, so that
//! nothing here is remembered.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

const KIND_BITS: u32 = 3;

/// The kind of thing that an id names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Server = 1,
    Channel = 2,
    /// A connection of the server.
    Socket = 3,
    Subchannel = 4,
    /// The connection of a subchannel.
    SubchannelSocket = 5,
}

/// Returns the id of a thing.
pub(super) fn id(kind: Kind, number: u64) -> i64 {
    // The bits of a sign and of the kind are free: counts do not reach them, and hashes are cut.
    let number = number & u64::MAX >> (KIND_BITS + 1);
    i64::try_from(number << KIND_BITS | kind as u64).unwrap_or(i64::MAX)
}

/// Returns the number of a subchannel: of a server and one of its connections in a channel's list.
/// Lists change their order, so an index is none.
pub(super) fn subchannel_number(channel: usize, address: &str, connection: u16) -> u64 {
    let mut hasher = DefaultHasher::new();
    (channel, address, connection).hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn ids_are_positive_and_in_order(number in any::<u64>(), more in 1_u64..1 << 40) {
            let small = number >> 5;
            prop_assert!(id(Kind::Socket, number) > 0);
            prop_assert!(id(Kind::Socket, small) < id(Kind::Socket, small + more));
            prop_assert_ne!(id(Kind::Subchannel, number), id(Kind::SubchannelSocket, number));
        }
    }
}
