//! Metadata as it is shown: its names, and no value. Tokens travel as values, and what a program
//! writes by `Debug` is in its log.

use std::fmt;

use tonic::metadata::{KeyRef, MetadataMap};

/// Shows the names of metadata.
pub(crate) struct MetadataNames<'a>(pub(crate) &'a MetadataMap);

impl fmt::Debug for MetadataNames<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.0.keys().map(|key| match key {
            KeyRef::Ascii(key) => key.as_str(),
            KeyRef::Binary(key) => key.as_str(),
        });
        f.debug_list().entries(names).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Trailers;

    #[test]
    fn names_are_shown_and_no_value() {
        let mut metadata = MetadataMap::new();
        metadata.insert("authorization", "Bearer abc".parse().unwrap());
        metadata.insert_bin("trace-bin", tonic::metadata::MetadataValue::from_bytes(b"secret"));
        let shown = format!("{:?}", Trailers(metadata));
        assert_eq!(shown, r#"Trailers(["authorization", "trace-bin"])"#);
    }
}
