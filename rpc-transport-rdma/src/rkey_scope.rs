//! How far a key reaches that a peer is given (design decision D15).
//!
//! Decided once for a device: by the configuration, and by what the device can really do.

use std::fmt;
use std::str::FromStr;

use crate::verbs::Port;
use crate::window_check::{WindowFault, check_windows};

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
    /// registered: whoever remembers an old key can read what the buffer holds next. For peers
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
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no scope of keys: it is `auto`, `window` or `region`")]
pub struct UnknownRkeyScope(String);

impl FromStr for RkeyScope {
    type Err = UnknownRkeyScope;

    fn from_str(word: &str) -> Result<Self, UnknownRkeyScope> {
        let all = [Self::Auto, Self::Window, Self::Region];
        let found = all.into_iter().find(|scope| scope.to_string() == word);
        found.ok_or_else(|| UnknownRkeyScope(word.to_owned()))
    }
}

impl RkeyScope {
    /// What is used on a port under this policy: a window's scope or a region's.
    ///
    /// # Errors
    ///
    /// [`WindowFault`] when windows are required and not possible.
    pub(crate) fn on(self, port: &Port) -> Result<Self, WindowFault> {
        let device = port.device.name();
        let defect = port.device.window_defect();
        match (self, defect) {
            (Self::Region, _) => Ok(Self::Region),
            (Self::Window, defect) => {
                if !port.device.has_known_windows() {
                    check_windows(port)?;
                }
                if let Some(defect) = defect {
                    rpc_core::limited_log!(
                        of_process,
                        WARN,
                        "rkey scope is window, as configured",
                        device,
                        defect
                    );
                }
                Ok(Self::Window)
            }
            (Self::Auto, Some(defect)) => {
                rpc_core::limited_log!(
                    of_process,
                    INFO,
                    "rkey scope is region",
                    device,
                    reason = defect
                );
                Ok(Self::Region)
            }
            (Self::Auto, None) => Ok(match check_windows(port) {
                Ok(()) => Self::Window,
                Err(reason) => {
                    rpc_core::limited_log!(
                        of_process, INFO, "rkey scope is region", device, %reason
                    );
                    Self::Region
                }
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verbs::mock::MockDevice;

    #[test]
    fn every_scope_is_read_as_it_is_written() {
        for scope in [RkeyScope::Auto, RkeyScope::Window, RkeyScope::Region] {
            assert_eq!(scope.to_string().parse(), Ok(scope));
        }
        assert!("slab".parse::<RkeyScope>().unwrap_err().to_string().contains("`slab`"));
    }

    #[test]
    fn without_windows_they_are_not_used_and_if_required_that_is_an_error() {
        let mock = MockDevice::new();
        let port = mock.port(&mock.device());
        assert_eq!(RkeyScope::Auto.on(&port).unwrap(), RkeyScope::Region);
        assert_eq!(RkeyScope::Region.on(&port).unwrap(), RkeyScope::Region);
        let error = RkeyScope::Window.on(&port).unwrap_err();
        assert!(error.to_string().contains("no memory windows"), "{error}");
    }
}
