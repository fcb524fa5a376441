//! Certificate faults, each with its remedy.

use rustls::CertificateError;

/// The side that holds the certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Holder {
    /// This side, which read the certificate from a file.
    Own,
    /// The peer, as judged by a `channel` or a `server`.
    Peer { judge: &'static str },
}

/// Describes a fault as a predicate of the certificate: "has been revoked".
pub(super) fn describe_fault(holder: Holder, error: &CertificateError) -> String {
    use CertificateError as C;
    let judge = match holder {
        Holder::Own => "farcall",
        Holder::Peer { judge } => judge,
    };
    match error {
        C::BadEncoding => "cannot be parsed: it is not an X.509 certificate".to_owned(),
        C::Revoked => "has been revoked".to_owned(),
        C::UnhandledCriticalExtension => {
            format!("has a critical extension unknown to this {judge}")
        }
        C::UnsupportedSignatureAlgorithmContext { .. }
        | C::UnsupportedSignatureAlgorithmForPublicKeyContext { .. } => format!(
            "has a signature algorithm that this {judge} does not accept: use SHA-256 or newer \
             with RSA of 2048 bits or more, ECDSA, or Ed25519"
        ),
        C::Other(other) => describe_other(&other.to_string()),
        error => format!("cannot be used: {}", spaced(&format!("{error:?}"))),
    }
}

/// Describes a webpki fault that rustls only passes on by name.
fn describe_other(name: &str) -> String {
    match name {
        "CaUsedAsEndEntity" => "is an authority's (CA:TRUE), the default of `openssl req -x509`: \
         create it with `-addext basicConstraints=critical,CA:FALSE`"
            .to_owned(),
        "EndEntityUsedAsCa" => "is signed by a certificate that is not an authority's (CA:FALSE): \
         create that one with `-addext basicConstraints=critical,CA:TRUE`"
            .to_owned(),
        "UnsupportedCertVersion" => "is X.509 version 1, the default of `openssl x509 -req` \
         without -extfile: create it as version 3, with a subjectAltName"
            .to_owned(),
        "PathLenConstraintViolated" => "has more authorities above it than one of them allows \
                                        (pathlen)"
            .to_owned(),
        "NameConstraintViolation" => {
            "is for a name outside its authority's name constraints".to_owned()
        }
        name => format!("cannot be used: {}", spaced(name)),
    }
}

/// Returns a variant's name without its fields, split into lower-case words.
pub(super) fn spaced(name: &str) -> String {
    let mut spaced = String::new();
    for letter in name.chars().take_while(char::is_ascii_alphanumeric) {
        if letter.is_ascii_uppercase() && !spaced.is_empty() {
            spaced.push(' ');
        }
        spaced.push(letter.to_ascii_lowercase());
    }
    spaced
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use rustls::OtherError;

    use super::*;

    fn other(error: webpki::Error) -> String {
        let error = CertificateError::Other(OtherError(Arc::new(error)));
        describe_fault(Holder::Peer { judge: "channel" }, &error)
    }

    #[test]
    fn usual_faults_name_the_fix() {
        assert!(other(webpki::Error::CaUsedAsEndEntity).contains("CA:FALSE"));
        assert!(other(webpki::Error::EndEntityUsedAsCa).contains("CA:TRUE"));
        assert!(other(webpki::Error::UnsupportedCertVersion).contains("version 3"));
        assert!(other(webpki::Error::PathLenConstraintViolated).contains("pathlen"));
        assert!(other(webpki::Error::NameConstraintViolation).contains("name constraints"));
    }

    #[test]
    fn no_fault_is_shown_as_debug_text() {
        let message = other(webpki::Error::MaximumPathBuildCallsExceeded);
        assert_eq!(message, "cannot be used: maximum path build calls exceeded");
        let context = CertificateError::UnsupportedSignatureAlgorithmForPublicKeyContext {
            signature_algorithm_id: vec![1],
            public_key_algorithm_id: vec![2],
        };
        for error in [context, CertificateError::UnknownRevocationStatus] {
            let message = describe_fault(Holder::Own, &error);
            assert!(!message.contains(['{', '(', '[']), "{message}");
        }
    }
}
