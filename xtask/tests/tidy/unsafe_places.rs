//! Keeps `unsafe` in its places, and requires every other crate to forbid it.

use crate::fault::Fault;
use crate::source::{Source, find};

/// The folders that hold the argument for their own unsafe code.
const PLACES: &[&str] = &[
    "rpc-transport-rdma/src/sys/",
    "rpc-transport-rdma/src/verbs/",
    "rpc-transport-rdma/src/memory/",
];

/// The crate that has those folders.
const CRATE_WITH_PLACES: &str = "rpc-transport-rdma/src/lib.rs";

/// Uses of `unsafe` in a file that may have none.
pub(crate) fn check(source: &Source) -> Vec<Fault> {
    if PLACES.iter().any(|place| source.path.starts_with(place)) {
        return Vec::new();
    }
    find(&source.tokens(), "unsafe")
        .into_iter()
        .map(|line| Fault::new(&source.path, line, "`unsafe` outside of the places for it"))
        .collect()
}

/// A crate's first file that does not forbid unsafe code.
pub(crate) fn check_root(source: &Source) -> Vec<Fault> {
    let forbids = !find(&source.tokens(), "# ! [ forbid ( unsafe_code ) ]").is_empty();
    if forbids || source.path == CRATE_WITH_PLACES {
        return Vec::new();
    }
    vec![Fault::new(&source.path, 1, "the crate does not say `#![forbid(unsafe_code)]`")]
}

mod tests {
    use super::*;

    const BLOCK: &str = "//! Not unsafe {\nfn f() {\n    let x = unsafe { g() };\n}\n";

    #[test]
    fn a_block_is_found_where_it_may_not_stand() {
        let faults = check(&Source::new("rpc-core/src/lib.rs", BLOCK));
        assert_eq!(faults.iter().map(|fault| fault.line).collect::<Vec<_>>(), [3]);
        assert!(check(&Source::new("rpc-transport-rdma/src/sys/a.rs", BLOCK)).is_empty());
        assert_eq!(check(&Source::new("rpc-transport-rdma/src/sys.rs", BLOCK)).len(), 1);
    }

    #[test]
    fn unsafe_functions_impls_attributes_and_macros_are_found() {
        for text in [
            "unsafe fn f() {}",
            "unsafe impl Send for A {}",
            "#[unsafe(no_mangle)] fn f() {}",
            "m!(unsafe { f() });",
        ] {
            assert_eq!(check(&Source::new("farcall/src/a.rs", text)).len(), 1, "{text}");
        }
    }

    #[test]
    fn a_root_must_forbid_it_in_code() {
        assert!(check_root(&Source::new("a/src/lib.rs", "#![forbid(unsafe_code)]")).is_empty());
        let comment = Source::new("a/src/lib.rs", "// #![forbid(unsafe_code)]");
        assert_eq!(check_root(&comment).len(), 1);
        assert!(check_root(&Source::new(CRATE_WITH_PLACES, "")).is_empty());
    }
}
