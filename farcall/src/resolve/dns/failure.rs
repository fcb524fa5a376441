//! Why a name has no records, in a sentence.

use std::fmt;

use hickory_resolver::net::{DnsError, NetError};

/// Why a name has no records of a kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct LookupFailure(String);

impl LookupFailure {
    pub(super) fn new(error: &NetError, name: &str, kind: &str) -> Self {
        if error.is_no_records_found() {
            return Self::no_records(name, kind);
        }
        let name = without_root(name);
        Self(match error {
            NetError::Dns(DnsError::ResponseCode(code)) => {
                format!("the name server refuses to look up {name}: {code}")
            }
            NetError::Timeout => format!("no name server answered for {name} in time"),
            NetError::NoConnections => format!("cannot reach a name server to look up {name}"),
            NetError::Io(error) => format!("cannot look up {name}: {error}"),
            other => format!("cannot look up {name}: {other}"),
        })
    }

    pub(super) fn no_records(name: &str, kind: &str) -> Self {
        Self(format!("{} has no {kind} record", without_root(name)))
    }

    /// For SRV records whose target is the root: RFC 2782 has that say that there is no service.
    pub(super) fn no_service(name: &str) -> Self {
        let name = without_root(name);
        Self(format!("{name} has no service: the target of its SRV record is \".\""))
    }
}

/// The name as people write it.
fn without_root(name: &str) -> &str {
    name.strip_suffix('.').unwrap_or(name)
}

impl fmt::Display for LookupFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use hickory_resolver::net::NoRecords;
    use hickory_resolver::proto::op::{Query, ResponseCode};

    use super::*;

    #[test]
    fn failures_are_sentences_that_name_the_name() {
        let none = NoRecords::new(Query::new(), ResponseCode::NXDomain);
        let refused = NetError::Dns(DnsError::ResponseCode(ResponseCode::ServFail));
        let gone = io::Error::from(io::ErrorKind::ConnectionRefused);
        for (error, sentence) in [
            (none.into(), "nosuch.invalid has no A or AAAA record"),
            (refused, "the name server refuses to look up nosuch.invalid: Server Failure"),
            (NetError::Timeout, "no name server answered for nosuch.invalid in time"),
            (NetError::NoConnections, "cannot reach a name server to look up nosuch.invalid"),
            (gone.into(), "cannot look up nosuch.invalid: connection refused"),
        ] {
            let failure = LookupFailure::new(&error, "nosuch.invalid.", "A or AAAA");
            assert_eq!(failure.to_string(), sentence);
        }
    }
}
