//! The text of PEM files as editors save them, and explanations for files with the wrong content.
//!
//! No message reveals a file's contents: it shows a label only if the label is in a table.

use std::borrow::Cow;
use std::fmt;

/// Reads a UTF-16 unit from its bytes in one of the two byte orders.
type ReadUnit = fn([u8; 2]) -> u16;

/// The byte order marks of UTF-16, each with its byte order.
const UTF_16: [([u8; 2], ReadUnit); 2] =
    [([0xff, 0xfe], u16::from_le_bytes), ([0xfe, 0xff], u16::from_be_bytes)];

/// The byte order mark of UTF-8.
const UTF_8: [u8; 3] = [0xef, 0xbb, 0xbf];

/// Labels of sections that are neither certificates nor private keys, each with its remedy.
const OTHER_SECTIONS: [(&str, &str); 9] = [
    ("ENCRYPTED PRIVATE KEY", PASSPHRASE),
    ("OPENSSH PRIVATE KEY", "convert the key to PKCS #8 with `ssh-keygen -p -m PKCS8 -f FILE`"),
    (
        "DSA PRIVATE KEY",
        "TLS 1.3 has no DSA: create a key with `openssl genpkey -algorithm \
      ed25519`",
    ),
    ("PRIVATE KEY", "the certificate is in another file"),
    ("CERTIFICATE REQUEST", "name the certificate that the authority issued for it"),
    ("TRUSTED CERTIFICATE", "convert it to a plain one with `openssl x509 -in FILE -out FILE.pem`"),
    ("PKCS7", "extract its certificates with `openssl pkcs7 -print_certs -in FILE -out FILE.pem`"),
    ("PUBLIC KEY", "name the file with the private key"),
    ("CERTIFICATE", "the key is in another file"),
];

const PASSPHRASE: &str = "farcall cannot ask for a passphrase: remove it with `openssl pkey -in \
                          FILE -out FILE.plain`";

/// Returns the text without byte order marks, and converted from UTF-16 to UTF-8. Files that were
/// concatenated also have marks in the middle.
pub(super) fn plain(text: &[u8]) -> Cow<'_, [u8]> {
    for (mark, from_bytes) in UTF_16 {
        if let Some(units) = text.strip_prefix(&mark) {
            let units = units.chunks_exact(2).map(|unit| from_bytes([unit[0], unit[1]]));
            let text = char::decode_utf16(units).map(|letter| letter.unwrap_or(' '));
            return text
                .filter(|letter| *letter != '\u{feff}')
                .collect::<String>()
                .into_bytes()
                .into();
        }
    }
    if !text.windows(UTF_8.len()).any(|bytes| bytes == UTF_8) {
        return text.into();
    }
    let mut plain = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((first, behind)) = rest.split_first() {
        rest = rest.strip_prefix(&UTF_8).unwrap_or_else(|| {
            plain.push(*first);
            behind
        });
    }
    plain.into()
}

/// Returns true if a passphrase protects a key in the file, in either of OpenSSL's forms.
pub(super) fn has_passphrase(text: &[u8]) -> bool {
    let text = String::from_utf8_lossy(text);
    text.contains("-----BEGIN ENCRYPTED PRIVATE KEY") || text.contains("Proc-Type: 4,ENCRYPTED")
}

/// The content of a file that lacks the required section, with the remedy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Found {
    Nothing,
    Empty,
    Passphrase,
    /// ASN.1 bytes, with the OpenSSL command that converts them to PEM.
    Der(&'static str),
    Section(&'static str, &'static str),
}

impl Found {
    /// Examines a file without a `wanted` section.
    pub(super) fn in_place_of(wanted: &str, text: &[u8]) -> Self {
        if has_passphrase(text) && wanted != "certificate" {
            return Self::Passphrase;
        }
        if text.trim_ascii().is_empty() {
            return Self::Empty;
        }
        // A SEQUENCE with a two-byte length. A PKCS #12 store continues with version 3.
        if let [0x30, 0x82, _, _, rest @ ..] = text {
            return Self::Der(match (rest, wanted) {
                ([2, 1, 3, ..], _) => "openssl pkcs12 -nodes -in",
                (_, "certificate") => "openssl x509 -inform der -in",
                _ => "openssl pkey -inform der -in",
            });
        }
        let text = String::from_utf8_lossy(text);
        let labels: Vec<&str> = text
            .lines()
            .filter_map(|line| line.trim_ascii().strip_prefix("-----BEGIN ")?.strip_suffix("-----"))
            .collect();
        let mut known = OTHER_SECTIONS.into_iter();
        let found = known.find(|(label, _)| labels.iter().any(|it| it.ends_with(label)));
        found.map_or(Self::Nothing, |(label, fix)| Self::Section(label, fix))
    }
}

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nothing => Ok(()),
            Self::Empty => f.write_str(": it is empty"),
            Self::Passphrase => write!(f, ", but a key with a passphrase: {PASSPHRASE}"),
            Self::Der(program) => {
                write!(f, ": it is in DER: convert it with `{program} FILE -out FILE.pem`")
            }
            Self::Section(label, fix) => write!(f, ", but has a section {label}: {fix}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_removed_anywhere() {
        let text = "-----BEGIN CERTIFICATE-----\nAA==\n-----END CERTIFICATE-----\n";
        let marked = format!("\u{feff}{text}\u{feff}{text}");
        let expected = text.repeat(2).into_bytes();
        assert_eq!(&*plain(marked.as_bytes()), expected);
        let units: Vec<u16> = marked.encode_utf16().collect();
        let little: Vec<u8> = units.iter().flat_map(|unit| unit.to_le_bytes()).collect();
        let big: Vec<u8> = units.iter().flat_map(|unit| unit.to_be_bytes()).collect();
        assert_eq!((&*plain(&little), &*plain(&big)), (&*expected, &*expected));
        assert!(matches!(plain(text.as_bytes()), Cow::Borrowed(_)));
    }

    #[test]
    fn the_actual_content_is_named_with_its_remedy() {
        let section = |label: &str| format!("-----BEGIN {label}-----\nAA==\n-----END {label}-----");
        for (wanted, text, expected) in [
            ("private key", section("ENCRYPTED PRIVATE KEY"), ", but a key with a passphrase: "),
            (
                "private key",
                section("CERTIFICATE"),
                ", but has a section CERTIFICATE: the key is \
              in",
            ),
            (
                "private key",
                section("OPENSSH PRIVATE KEY"),
                ", but has a section OPENSSH PRIVATE \
              KEY",
            ),
            ("certificate", section("RSA PRIVATE KEY"), ", but has a section PRIVATE KEY: "),
            (
                "certificate",
                section("CERTIFICATE REQUEST"),
                ", but has a section CERTIFICATE \
              REQUEST",
            ),
            ("certificate", " \n".to_owned(), ": it is empty"),
        ] {
            let found = Found::in_place_of(wanted, text.as_bytes()).to_string();
            assert!(found.starts_with(expected), "{found}");
        }
        assert_eq!(Found::in_place_of("private key", b"secret"), Found::Nothing);
        let secret = section("SECRET hunter2");
        assert_eq!(Found::in_place_of("private key", secret.as_bytes()), Found::Nothing);
        let store = Found::in_place_of("certificate", &[0x30, 0x82, 9, 9, 2, 1, 3, 0x30]);
        assert!(store.to_string().contains("openssl pkcs12"), "{store}");
    }
}
