//! Keys that the reader left out for a mistake, and what a table without them says in vain.

/// The keys that were left out, with their tables.
#[derive(Debug, Default)]
pub(super) struct LeftOut(Vec<Vec<String>>);

impl LeftOut {
    pub(super) fn push(&mut self, key: Vec<String>) {
        self.0.push(key);
    }

    /// Those of `tables`, a target's or a server's own and its defaults.
    pub(super) fn within(&self, tables: &[&[&str]]) -> Gaps<'_> {
        let within = |key: &'_ Vec<String>| {
            let table = tables.iter().find(|table| {
                let names = key.iter().map(String::as_str);
                names.zip(**table).all(|(name, table)| name == *table)
            })?;
            Some(table.len().min(key.len()))
        };
        Gaps(self.0.iter().filter_map(|key| Some(&key[within(key)?..])).collect())
    }
}

/// The keys of one table that were left out, from that table on.
#[derive(Debug)]
pub(super) struct Gaps<'a>(Vec<&'a [String]>);

impl Gaps<'_> {
    /// Returns true if a mistake at `key` may come from what was left out: the key itself, a table
    /// that it is in, or a key beside it in the same table.
    pub(super) fn explain(&self, key: &[&str]) -> bool {
        let is_within = |gap: &[String]| {
            gap.len() <= key.len() && gap.iter().zip(key).all(|(gap, key)| gap == key)
        };
        let is_beside = |gap: &[String]| {
            let (Some((_, table)), Some((_, of_key))) = (gap.split_last(), key.split_last()) else {
                return false;
            };
            !table.is_empty() && table == of_key
        };
        self.0.iter().any(|gap| is_within(gap) || is_beside(gap))
    }

    /// Returns true if any key was left out in one of these tables, or is one of these keys.
    pub(super) fn touch(&self, names: &[&str]) -> bool {
        let is_one =
            |gap: &&[String]| gap.first().is_none_or(|first| names.contains(&first.as_str()));
        self.0.iter().any(is_one)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gap_explains_its_own_table_and_no_other() {
        let mut left_out = LeftOut::default();
        let owned = |key: &str| key.split('.').map(ToOwned::to_owned).collect();
        for key in ["targets.a.limits.max_calls", "defaults.target.tls", "targets.a.timeout"] {
            left_out.push(owned(key));
        }
        let gaps = left_out.within(&[&["targets", "a"], &["defaults", "target"]]);
        assert!(gaps.explain(&["limits", "max_message_len"]));
        assert!(gaps.explain(&["tls", "cert"]) && gaps.touch(&["tls"]));
        assert!(!gaps.explain(&["address"]) && !gaps.explain(&["balance", "policy"]));
        let other = left_out.within(&[&["targets", "b"], &["defaults", "target"]]);
        assert!(!other.explain(&["limits", "max_message_len"]) && other.touch(&["tls"]));
        left_out.push(owned("targets"));
        assert!(left_out.within(&[&["targets", "b"]]).explain(&["address"]));
    }
}
