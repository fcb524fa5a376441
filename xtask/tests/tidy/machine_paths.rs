//! Paths that exist on one machine only have no place in a repository.

use crate::fault::Fault;

/// Beginnings of such paths, in pieces so that this file passes its own rule.
const FORBIDDEN: &[&str] =
    &[concat!("/wo", "rk/"), concat!("/ro", "ot/"), concat!("/tmp/tar", "get")];

/// The places in `text` that name such a path.
pub(crate) fn check(path: &str, text: &str) -> Vec<Fault> {
    let mut faults = Vec::new();
    for (index, line) in text.lines().enumerate() {
        for forbidden in FORBIDDEN.iter().filter(|forbidden| stands_alone(line, forbidden)) {
            let what = format!("a path of one machine: {forbidden}");
            faults.push(Fault::new(path, index + 1, what));
        }
    }
    faults
}

/// Returns true if `path` begins a path in `line`, rather than continuing one.
fn stands_alone(line: &str, path: &str) -> bool {
    line.match_indices(path).any(|(at, _)| {
        !line[..at].ends_with(|before: char| before.is_alphanumeric() || "_-.}".contains(before))
    })
}

mod tests {
    use super::*;

    #[test]
    fn paths_of_a_machine_are_found_with_their_line() {
        for forbidden in FORBIDDEN {
            let faults = check("a.md", &format!("first\nsee {forbidden}farcall\n"));
            assert_eq!(faults.iter().map(|fault| fault.line).collect::<Vec<_>>(), [2]);
        }
    }

    #[test]
    fn the_same_words_inside_other_paths_are_fine() {
        for forbidden in FORBIDDEN {
            assert!(check("a.md", &format!("some{forbidden}x")).is_empty());
        }
    }
}
