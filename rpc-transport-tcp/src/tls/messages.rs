//! Messages for users about a failed TLS handshake, on either side.

use std::fmt;
use std::time::Duration;

use rpc_core::connect::Alpn;
use rpc_core::wire::{PeerText, Spoken};
use rustls::pki_types::ServerName;
use rustls::{AlertDescription, CertificateError, Error};

use super::certificate_fault::{Holder, describe_fault, spaced};

/// Maximum number of a certificate's names to show.
const NAMES_MAX: usize = 4;

/// The side that reports a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    Client,
    Server,
}

impl Role {
    fn peer(self) -> &'static str {
        match self {
            Self::Client => "server",
            Self::Server => "client",
        }
    }

    /// Returns the user's name for this side.
    fn ours(self) -> &'static str {
        match self {
            Self::Client => "channel",
            Self::Server => "server",
        }
    }

    /// Returns the setting with the authorities that verify the peer's certificate.
    fn authorities(self) -> &'static str {
        match self {
            Self::Client => "tls.ca",
            Self::Server => "tls.client_ca",
        }
    }
}

/// Describes the reason why there is no TLS session.
pub(super) fn describe_error(role: Role, protocols: &[Alpn], error: &Error) -> String {
    let (peer, ours) = (role.peer(), role.ours());
    match error {
        Error::InvalidCertificate(error) => describe_certificate(role, error),
        Error::NoCertificatesPresented => {
            "the client presented no certificate, and this server requires one from an authority \
             in tls.client_ca"
                .to_owned()
        }
        Error::AlertReceived(alert) => describe_alert(role, protocols, *alert),
        Error::NoApplicationProtocol => not_spoken(role, protocols),
        Error::PeerIncompatible(error) => {
            let fault = spaced(&format!("{error:?}"));
            format!("the {peer}'s TLS and this {ours}'s have nothing in common: {fault}")
        }
        Error::InvalidMessage(error) => {
            format!("the {peer} does not speak TLS: {}", spaced(&format!("{error:?}")))
        }
        error => format!("the {peer} violated TLS: {error}"),
    }
}

/// Describes a peer that speaks TLS, and another protocol over it.
pub(super) fn not_spoken(role: Role, protocols: &[Alpn]) -> String {
    let joined =
        |what: fn(&Alpn) -> &str, by| protocols.iter().map(what).collect::<Vec<_>>().join(by);
    let (names, ids) = (joined(|it| it.name, " or "), joined(|it| it.id, ", "));
    format!("the {} speaks TLS, but not {names} over it (ALPN {ids})", role.peer())
}

/// Describes a peer that negotiates no protocol.
pub(super) fn describe_no_alpn(role: Role, protocols: &[Alpn]) -> String {
    let (peer, ours) = (role.peer(), role.ours());
    let ids = protocols.iter().map(|it| it.id).collect::<Vec<_>>().join(", ");
    format!(
        "the {peer} negotiated no protocol in the TLS handshake (ALPN {ids}): something such as a \
         load balancer terminates TLS in between; accept that with tls.alpn = \"optional\" on the \
         {ours}"
    )
}

/// Describes a peer that closed the connection before there was a session. `is_silent` is true if
/// it sent nothing.
pub(super) fn describe_close(role: Role, is_silent: bool) -> String {
    let peer = role.peer();
    if is_silent {
        return format!(
            "the {peer} closed the connection before it sent anything: it may have no \
                        TLS"
        );
    }
    format!("the {peer} closed the connection during the TLS handshake")
}

/// Describes a peer whose first bytes are not TLS.
pub(super) fn describe_first_bytes(role: Role, first: &[u8]) -> String {
    match (role, Spoken::of(first)) {
        (Role::Client, Some(Spoken::Farcall)) => {
            "the server speaks farcall without TLS: remove `tls` from this channel, or set it on \
             the server"
                .to_owned()
        }
        (Role::Server, Some(Spoken::Farcall)) => {
            "the client speaks farcall without TLS, but this server requires TLS: set `tls` on \
             the channel"
                .to_owned()
        }
        (Role::Client, Some(Spoken::Http2)) => {
            "the server speaks HTTP/2 without TLS: write grpc://, and remove `tls`".to_owned()
        }
        (Role::Server, Some(Spoken::Http2)) => {
            "the client speaks gRPC over HTTP/2 without TLS, but this server requires TLS"
                .to_owned()
        }
        (_, Some(spoken)) => {
            format!("the {} does not speak TLS: {}", role.peer(), spoken.describe())
        }
        (_, None) => {
            format!("the {} does not speak TLS: its first bytes are {first:02x?}", role.peer())
        }
    }
}

fn describe_certificate(role: Role, error: &CertificateError) -> String {
    use CertificateError as C;
    let (peer, ours) = (role.peer(), role.ours());
    match error {
        C::UnknownIssuer => format!(
            "the {peer}'s certificate is not from an authority that this {ours} trusts ({})",
            role.authorities()
        ),
        C::BadSignature => format!(
            "the {peer}'s certificate is signed by another authority of the same name as one that \
             this {ours} trusts ({})",
            role.authorities()
        ),
        C::ExpiredContext { time, not_after } => {
            let since = time.as_secs().saturating_sub(not_after.as_secs());
            format!("the {peer}'s certificate expired {} ago", Rough(Duration::from_secs(since)))
        }
        C::Expired => format!("the {peer}'s certificate has expired"),
        C::NotValidYetContext { time, not_before } => {
            let until = not_before.as_secs().saturating_sub(time.as_secs());
            let until = Rough(Duration::from_secs(until));
            format!("the {peer}'s certificate becomes valid in {until}: is the clock right?")
        }
        C::NotValidYet => format!("the {peer}'s certificate is not valid yet"),
        C::NotValidForNameContext { expected, presented } if presented.is_empty() => format!(
            "the server's certificate has no subjectAltName, and its common name does not count: \
             create it with `-addext subjectAltName={}`",
            alt_name(expected)
        ),
        C::NotValidForNameContext { expected, presented } => format!(
            "the server's certificate is for {}, not {} (tls.server_name)",
            names(presented),
            name_of(expected)
        ),
        C::NotValidForName => "the server's certificate is for another name".to_owned(),
        C::InvalidPurpose | C::InvalidPurposeContext { .. } => {
            format!("the {peer}'s certificate is not made for a TLS {peer}")
        }
        error => {
            let fault = describe_fault(Holder::Peer { judge: ours }, error);
            format!("the {peer}'s certificate {fault}")
        }
    }
}

/// Describes the peer's alert about this side.
fn describe_alert(role: Role, protocols: &[Alpn], alert: AlertDescription) -> String {
    use AlertDescription as A;
    let (peer, ours) = (role.peer(), role.ours());
    match alert {
        A::CertificateRequired => format!(
            "the {peer} requires a certificate, but this {ours} presented none (tls.cert, tls.key)"
        ),
        A::UnknownCA => format!(
            "the {peer} does not trust the authority of this {ours}'s certificate (tls.cert)"
        ),
        A::DecryptError => format!(
            "the {peer} trusts another authority of the same name as that of this {ours}'s \
             certificate (tls.cert)"
        ),
        A::CertificateExpired => {
            format!(
                "the {peer} refuses this {ours}'s certificate: it has expired, or is not valid yet \
                 (tls.cert)"
            )
        }
        A::CertificateRevoked => {
            format!("the {peer} refuses this {ours}'s certificate: it has been revoked (tls.cert)")
        }
        A::BadCertificate | A::UnsupportedCertificate | A::CertificateUnknown => format!(
            "the {peer} refuses this {ours}'s certificate (tls.cert): it may be for another name \
             or purpose, or be an authority's own"
        ),
        A::AccessDenied => format!("the {peer} denies this {ours} access"),
        A::NoApplicationProtocol => not_spoken(role, protocols),
        A::ProtocolVersion => format!("the {peer} does not speak TLS 1.3"),
        A::UnexpectedMessage | A::DecodeError => {
            let alert = spaced(&format!("{alert:?}"));
            format!("the {peer} did not understand this {ours}'s TLS (alert: {alert})")
        }
        alert => {
            let alert = spaced(&format!("{alert:?}"));
            format!("the {peer} aborted the TLS handshake (alert: {alert})")
        }
    }
}

/// Formats the names in a peer's certificate.
pub(super) fn names(presented: &[String]) -> String {
    // webpki writes `DnsName("a.example")` and `IpAddress(10.0.0.1)`.
    let bare = |name: &String| {
        let inner = name.split_once('(').map_or(name.as_str(), |(_, inner)| inner);
        PeerText::new(inner.trim_end_matches(')').trim_matches('"')).to_string()
    };
    let shown: Vec<_> = presented.iter().take(NAMES_MAX).map(bare).collect();
    let more = presented.len().saturating_sub(NAMES_MAX);
    let shown = shown.join(", ");
    if more > 0 { format!("{shown} and {more} more names") } else { shown }
}

/// Formats a name the way OpenSSL accepts it as a subjectAltName.
fn alt_name(name: &ServerName<'_>) -> String {
    let kind = if matches!(name, ServerName::IpAddress(_)) { "IP" } else { "DNS" };
    format!("{kind}:{}", name.to_str())
}

fn name_of(name: &ServerName<'_>) -> String {
    name.to_str().into_owned()
}

/// A duration in its largest unit.
struct Rough(Duration);

impl fmt::Display for Rough {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.0.as_secs();
        let (count, unit) = match seconds {
            0..60 => (seconds, "second"),
            60..3600 => (seconds / 60, "minute"),
            3600..86400 => (seconds / 3600, "hour"),
            _ => (seconds / 86400, "day"),
        };
        write!(f, "{count} {unit}{}", if count == 1 { "" } else { "s" })
    }
}

#[cfg(test)]
mod tests {
    use rustls::pki_types::UnixTime;

    use super::*;

    fn at(seconds: u64) -> UnixTime {
        UnixTime::since_unix_epoch(Duration::from_secs(seconds))
    }

    #[test]
    fn certificate_faults_are_described_from_each_side() {
        let unknown = Error::InvalidCertificate(CertificateError::UnknownIssuer);
        assert_eq!(
            describe_error(Role::Client, &[Alpn::FARCALL], &unknown),
            "the server's certificate is not from an authority that this channel trusts (tls.ca)"
        );
        assert_eq!(
            describe_error(Role::Server, &[Alpn::FARCALL], &unknown),
            "the client's certificate is not from an authority that this server trusts \
             (tls.client_ca)"
        );
        let alert = Error::AlertReceived(AlertDescription::CertificateRequired);
        assert_eq!(
            describe_error(Role::Client, &[Alpn::FARCALL], &alert),
            "the server requires a certificate, but this channel presented none (tls.cert, tls.key)"
        );
    }

    #[test]
    fn an_untimely_certificate_says_by_how_much() {
        let (time, not_after) = (at(1_000_000), at(1_000_000 - 3 * 86400 - 5));
        let expired = CertificateError::ExpiredContext { time, not_after };
        let message =
            describe_error(Role::Client, &[Alpn::FARCALL], &Error::InvalidCertificate(expired));
        assert_eq!(message, "the server's certificate expired 3 days ago");
        let early = CertificateError::NotValidYetContext { time, not_before: at(1_003_601) };
        let message =
            describe_error(Role::Server, &[Alpn::FARCALL], &Error::InvalidCertificate(early));
        assert_eq!(
            message,
            "the client's certificate becomes valid in 1 hour: is the clock right?"
        );
    }

    #[test]
    fn a_wrong_name_is_reported_with_the_right_ones() {
        let expected = ServerName::try_from("b.example").unwrap();
        let presented = vec!["DnsName(\"a.example\")".to_owned(), "IpAddress(10.0.0.1)".to_owned()];
        let wrong = CertificateError::NotValidForNameContext { expected, presented };
        let message =
            describe_error(Role::Client, &[Alpn::FARCALL], &Error::InvalidCertificate(wrong));
        assert_eq!(
            message,
            "the server's certificate is for a.example, 10.0.0.1, not b.example (tls.server_name)"
        );
        let many: Vec<_> = (0..9).map(|n| format!("DnsName(\"{n}\n\")")).collect();
        assert!(names(&many).ends_with("and 5 more names") && !names(&many).contains('\n'));
    }

    #[test]
    fn a_peer_without_tls_is_identified_by_its_first_bytes() {
        assert!(describe_first_bytes(Role::Client, b"farcall\n").contains("without TLS"));
        assert!(
            describe_first_bytes(Role::Server, b"farcall\n").contains("set `tls` on the channel")
        );
        assert!(describe_first_bytes(Role::Server, b"GET / HT").ends_with("this is HTTP/1.1"));
        assert!(describe_first_bytes(Role::Client, &[7, 1]).ends_with("first bytes are [07, 01]"));
    }
}
