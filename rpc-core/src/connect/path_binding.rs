//! What binds an upgraded path to the TLS session that it was agreed on.
//!
//! Each side's proof is 32 bytes that TLS exports (RFC 8446, 7.5) for a label of that side, over
//! both Hellos as they went over the stream, offers included. Only the two ends of the session can
//! make them, and a proof fits these Hellos alone: neither a peer that knows where a path begins
//! nor an end of another session can claim a path, or have it lead elsewhere. The probes over the
//! new path carry the proofs.

use std::fmt;

use super::{Bootstrap, HandshakeError};

/// The length of a proof in bytes.
pub const PROOF_LEN: usize = 32;

/// The labels of the two proofs.
const CLIENT: &[u8] = b"EXPORTER-farcall upgrade client";
const SERVER: &[u8] = b"EXPORTER-farcall upgrade server";

/// Which end of the stream this side is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    Client,
    Server,
}

/// The proofs of both sides of a path.
#[derive(Clone, Copy)]
pub struct PathBinding {
    ours: [u8; PROOF_LEN],
    theirs: [u8; PROOF_LEN],
}

impl PathBinding {
    /// Binds by proofs that both sides know, for tests of paths.
    #[must_use]
    pub fn new(ours: [u8; PROOF_LEN], theirs: [u8; PROOF_LEN]) -> Self {
        Self { ours, theirs }
    }

    /// The proofs over these Hellos; none where the stream has no TLS.
    pub(super) fn of(
        bootstrap: &dyn Bootstrap,
        end: End,
        client_hello: &[u8],
        server_hello: &[u8],
    ) -> Result<Option<Self>, HandshakeError> {
        let context = context(client_hello, server_hello);
        let client = bootstrap.export(CLIENT, &context)?;
        let server = bootstrap.export(SERVER, &context)?;
        let (Some(client), Some(server)) = (client, server) else { return Ok(None) };
        Ok(Some(match end {
            End::Client => Self { ours: client, theirs: server },
            End::Server => Self { ours: server, theirs: client },
        }))
    }

    /// What this side shows.
    #[must_use]
    pub fn ours(&self) -> &[u8; PROOF_LEN] {
        &self.ours
    }

    /// Whether `proof` is what the peer has to show. It takes the same time for every proof of the
    /// right length.
    #[must_use]
    pub fn is_theirs(&self, proof: &[u8]) -> bool {
        let pairs = self.theirs.iter().zip(proof);
        let difference = pairs.fold(0, |all, (ours, theirs)| all | (ours ^ theirs));
        proof.len() == PROOF_LEN && std::hint::black_box(difference) == 0
    }
}

/// Both Hellos, the first with its length before it, so that no other two read the same.
fn context(client_hello: &[u8], server_hello: &[u8]) -> Vec<u8> {
    let len = (client_hello.len() as u64).to_le_bytes();
    [&len[..], client_hello, server_hello].concat()
}

/// It shows no proof.
impl fmt::Debug for PathBinding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PathBinding")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proof_is_the_peers_whole_one_and_no_other() {
        let binding = PathBinding::new([1; PROOF_LEN], [2; PROOF_LEN]);
        assert!(binding.is_theirs(&[2; PROOF_LEN]));
        for forged in [&[1; PROOF_LEN][..], &[2; PROOF_LEN - 1], &[2; PROOF_LEN + 1], &[]] {
            assert!(!binding.is_theirs(forged));
        }
        for bit in 0..PROOF_LEN * 8 {
            let mut flipped = [2; PROOF_LEN];
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(!binding.is_theirs(&flipped));
        }
    }

    #[test]
    fn bytes_that_move_from_one_hello_to_the_other_change_the_context() {
        assert_ne!(context(b"ab", b"c"), context(b"a", b"bc"));
        assert_ne!(context(b"", b"abc"), context(b"abc", b""));
    }
}
