//! The choice of the port that serves a connection.

/// Which of the ports that may be used serves a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum PortChoice {
    /// The one that has the connection's local address; of several, the nearest. A peer is taken
    /// only if its port has the address that the connection comes from, so that no peer can have
    /// packets sent to another host: both ends need this choice, and no address translation
    /// between them.
    #[default]
    Address,
    /// The nearest that is active, with an address of its own if it does not have the
    /// connection's. The peer's port must be reachable from any port that may be used; if it is
    /// not, that is found out by the proof of the path, which takes its time.
    Nearest,
}

rpc_core::setting_words! { PortChoice { "address" => Self::Address, "nearest" => Self::Nearest } }
