//! Words that stand for an actor instead of naming it: the caller, the peer, the kernel.

use crate::fault::Fault;

/// The words, in pieces so that this file passes its own rule.
const VAGUE: &[&str] =
    &[concat!("who", "ever"), concat!("no", "body"), concat!("who", "m"), concat!("some", "body")];

/// A name for RDMA that says nothing to a user. In general it is "an upgraded path".
const VAGUE_PATH: &str = concat!("better", " path");

/// The places in `text` that have such a word.
pub(crate) fn check(path: &str, text: &str) -> Vec<Fault> {
    let is_prose = path.ends_with(".rs") || path.ends_with(".md");
    if !is_prose {
        return Vec::new();
    }
    let mut faults = Vec::new();
    for (index, line) in text.lines().enumerate() {
        if line.to_ascii_lowercase().contains(VAGUE_PATH) {
            faults.push(Fault::new(path, index + 1, format!("`{VAGUE_PATH}`: say RDMA")));
        }
        for word in line.split(|c: char| !c.is_alphanumeric()) {
            if VAGUE.iter().any(|vague| word.eq_ignore_ascii_case(vague)) {
                faults.push(Fault::new(path, index + 1, format!("`{word}`: name the actor")));
            }
        }
    }
    faults
}

mod tests {
    use super::*;

    #[test]
    fn words_are_found_whole_and_in_any_case() {
        let [first, second, third, _] = VAGUE else { panic!("there are four") };
        let text = format!("{}\nfine\na {second}'s, {third}\n{second}s", first.to_uppercase());
        let lines = |path| check(path, &text).iter().map(|fault| fault.line).collect::<Vec<_>>();
        assert_eq!(lines("xtask/src/a.rs"), [1, 3, 3]);
        assert_eq!(lines("README.md"), [1, 3, 3]);
    }

    #[test]
    fn rdma_is_called_by_its_name() {
        let text = format!("fine\nwithout the {}\n", VAGUE_PATH.to_uppercase());
        assert_eq!(check("rpc-core/src/a.rs", &text).len(), 1);
    }

    #[test]
    fn files_that_are_no_prose_are_left_alone() {
        assert!(check("xtask/a.toml", VAGUE[0]).is_empty());
    }
}
