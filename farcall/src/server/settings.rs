//! The settings of a server: those of `rpc-core`, and those that its listeners have.

use rpc_core::InvalidSetting;
#[cfg(feature = "grpc")]
use rpc_transport_grpc::WebOrigins;
use rpc_transport_tcp::ProxyNetworks;

rpc_core::define_settings! {
    /// The PROXY protocol, by which a load balancer says who its clients are. The table is an error
    /// where the server does not listen on TCP.
    ProxyProtocol, ProxyProtocolOverlay, "proxy_protocol", [], derive(PartialEq, Eq) {
        /// The networks that connections of load balancers come from, as "10.0.0.0/24". Each such
        /// connection has to begin with a PROXY header, of version 1 or 2.
        from: Vec<String> as Texts = Vec::new(), Start,
            rpc_core::settings::Checked(|it: &Vec<String>| ProxyNetworks::new(it).map(drop)), "";
    }
}

impl ProxyProtocol {
    /// Checks that each text is a network or an address.
    ///
    /// # Errors
    ///
    /// Returns the first that is not.
    pub(crate) fn check(&self) -> Result<(), InvalidSetting> {
        self.check_each()
    }
}

impl<I: IntoIterator<Item: Into<String>>> From<I> for ProxyProtocol {
    fn from(networks: I) -> Self {
        Self { from: networks.into_iter().map(Into::into).collect() }
    }
}

/// Hands the declaration of the settings of listeners to a macro.
macro_rules! listener_settings {
    ($($macro:ident)::+ $([$($argument:tt)*])?) => { $($macro)::+! { $([$($argument)*])?
    /// All settings of a server.
    ServerSettings, ServerOverlay, "server", [builder], derive(PartialEq) {
        /// The permissions of the file of a Unix socket, in octal digits; what the umask leaves
        /// unless it is set. Only a server at unix:///path has such a file.
        ///
        /// In code it is a number, for example `0o660`. A process that may write to the
        /// file may connect. The file has its mode and its owner before the first client
        /// can connect. A server at another address does not start with either.
        socket_mode: Option<u32> as OptionalMode = None => "\"0660\"", Start,
            rpc_core::settings::Checked(|it: &u32| {
                $crate::server::settings::check_socket_mode(*it)
            }), "";
        /// The user and the group that the file belongs to, as "app", ":www-data" or
        /// "app:www-data", by name or by number; those of the process unless it is set.
        ///
        /// Names are those of `/etc/passwd` and `/etc/group`; other users and groups have
        /// numbers.
        socket_owner: Option<String> as Text = None => "\":www-data\"", Start, .., "";
        /// The origins whose pages may call by grpc-web, as "https://app.example", or "*" for all.
        /// This needs farcall's feature `grpc`.
        ///
        /// Each is `scheme://host[:port]` as browsers send it, or `*` alone stands for all.
        /// A browser asks the port for leave (CORS) before it makes a call of a page that
        /// comes from elsewhere.
        ///
        /// Leave is for requests without credentials: the browser sends no cookies and no
        /// certificate. Metadata of any name may be sent and read, `authorization`
        /// included. Other clients need no leave: [`ServerBuilder::authorize`] decides who
        /// may call.
        ///
        /// [`ServerBuilder::authorize`]: crate::ServerBuilder::authorize
        grpc_web_origins: Vec<String> as Texts = Vec::new(), Start,
            rpc_core::settings::Checked(|it: &Vec<String>| {
                $crate::server::settings::check_web_origins(it)
            }), "";
        /// Accepts clients of gRPC at TCP and Unix addresses, with farcall's feature
        /// `grpc`.
        ///
        /// They call the same services, and the limits of every other client hold for them.
        /// With it off their connections are refused in the handshake, as without the
        /// feature.
        grpc_clients: bool as Switch = true, Start, .., "";
    } groups {
        /// The networks whose connections begin with a header of the PROXY protocol,
        /// version 1 or 2; none by default.
        ///
        /// Each is written `10.0.0.0/8`, `2001:db8::/32`, or as an address alone. It holds
        /// for every connection over TCP, whatever is spoken behind the header: farcall,
        /// gRPC, TLS.
        ///
        /// A load balancer that passes connections on is the peer of all of them. With its
        /// header the client's address takes its place: in limits by address, in the log
        /// and in [`PeerInfo`](crate::PeerInfo). A header without a client's address, as
        /// that of a health check, leaves the load balancer the peer.
        ///
        /// A connection from these networks has to begin with a header, and a connection
        /// from elsewhere must not: it is refused otherwise, since any client could name
        /// any address. The header has to come within the handshake's timeout. Name the
        /// addresses of the load balancers alone. At `unix://` and `inproc://` addresses
        /// the server does not start with this setting, and neither does it for byte
        /// streams that the program accepts itself.
        proxy_protocol: $crate::server::ProxyProtocol, ProxyProtocolOverlay, Start;
    } flat {
        /// The settings of calls and connections.
        base: $crate::server::BaseSettings, rpc_core::server::ServerOverlay;
    }
    } };
}

pub(super) use listener_settings;

listener_settings! { rpc_core::define_settings }

impl ServerSettings {
    /// Checks that each value is in its range.
    ///
    /// # Errors
    ///
    /// Returns the first that is not.
    pub(crate) fn check(&self) -> Result<(), InvalidSetting> {
        self.check_each()
    }
}

/// Checks the origins of pages.
#[cfg(feature = "grpc")]
pub(crate) fn check_web_origins(origins: &[String]) -> Result<(), InvalidSetting> {
    WebOrigins::new(origins).map(drop)
}

/// Refuses origins of pages: they would ask for leave in vain.
#[cfg(not(feature = "grpc"))]
pub(crate) fn check_web_origins(origins: &[String]) -> Result<(), InvalidSetting> {
    let rule = "[]: this program was built without farcall's feature `grpc`";
    rpc_core::settings::ensure(origins.is_empty(), "grpc_web_origins", origins, rule)
}

/// Checks the permissions of a file.
pub(crate) fn check_socket_mode(mode: u32) -> Result<(), InvalidSetting> {
    match mode {
        0..=0o777 => Ok(()),
        _ => {
            let rule = "at most 0o777, since a socket has only permission bits";
            Err(InvalidSetting::new("socket_mode", format_args!("{mode:#o}"), rule))
        }
    }
}
