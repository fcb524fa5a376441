//! How far a key reaches that a peer is given (design decision D15).
//!
//! What a device really has of it is decided once, by `window_check`.

use std::fmt;
use std::str::FromStr;

/// What a peer can read by a key that an offer gave it, and for how long.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum RkeyScope {
    /// [`Window`](Self::Window) where the device's windows have passed a check and nothing speaks
    /// against them, else [`Region`](Self::Region), and the log says why.
    #[default]
    Auto,
    /// A key opens one frame to one peer, until the peer has read it: a memory window is bound for
    /// each offer and its key is taken away with the release. Without windows there is no RDMA.
    Window,
    /// A key opens a registered buffer to every peer, and stays the same as long as that is
    /// registered: a peer that remembers an old key can read what the buffer holds next. For peers
    /// that are trusted, and for devices without windows.
    Region,
}

impl fmt::Display for RkeyScope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Auto => "auto",
            Self::Window => "window",
            Self::Region => "region",
        })
    }
}

/// A word that names no scope.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no scope of keys: it is `auto`, `window` or `region`")]
pub struct UnknownRkeyScope(String);

rpc_core::readable_debug!(UnknownRkeyScope);

impl FromStr for RkeyScope {
    type Err = UnknownRkeyScope;

    fn from_str(word: &str) -> Result<Self, UnknownRkeyScope> {
        let all = [Self::Auto, Self::Window, Self::Region];
        let found = all.into_iter().find(|scope| scope.to_string() == word);
        found.ok_or_else(|| UnknownRkeyScope(word.to_owned()))
    }
}

rpc_core::setting_words! {
    RkeyScope { "auto" => Self::Auto, "window" => Self::Window, "region" => Self::Region }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_scope_is_read_as_it_is_written() {
        for scope in [RkeyScope::Auto, RkeyScope::Window, RkeyScope::Region] {
            assert_eq!(scope.to_string().parse(), Ok(scope));
        }
        assert!("slab".parse::<RkeyScope>().unwrap_err().to_string().contains("`slab`"));
    }
}
