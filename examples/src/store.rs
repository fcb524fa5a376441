//! The keys and values, and etcd's counting of revisions.
//!
//! Keys and values stay in the memory that their request was received into: nothing is copied on
//! the way in or out, and a value keeps its request's memory as long as it is stored.

use std::collections::BTreeMap;

use bytes::Bytes;

use crate::KeyRange;
use crate::proto::mvccpb::KeyValue;

/// The keys in order, and the revision that the last change has made.
#[derive(Debug)]
pub struct Store {
    revision: i64,
    keys: BTreeMap<Bytes, KeyValue>,
}

/// The result of a change.
#[derive(Debug, Clone, PartialEq)]
pub struct Change<T> {
    /// The revision after it.
    pub revision: i64,
    /// The value before the change.
    pub previous: T,
}

/// The result of a range.
#[derive(Debug, Clone, PartialEq)]
pub struct Found {
    /// The revision that was looked at.
    pub revision: i64,
    /// The keys, in order, at most as many as asked for.
    pub kvs: Vec<KeyValue>,
    /// Number of keys in the range, including those beyond the limit.
    pub count: usize,
}

impl Default for Store {
    fn default() -> Self {
        // An empty etcd is at revision 1.
        Self { revision: 1, keys: BTreeMap::new() }
    }
}

impl Store {
    /// The revision that the last change has made.
    #[must_use]
    pub fn revision(&self) -> i64 {
        self.revision
    }

    /// Sets a key, which is a change of its own.
    pub fn put(&mut self, key: Bytes, value: Bytes) -> Change<Option<KeyValue>> {
        self.revision += 1;
        let revision = self.revision;
        let previous = self.keys.remove(&key);
        let (create_revision, version) = match &previous {
            Some(kv) => (kv.create_revision, kv.version + 1),
            None => (revision, 1),
        };
        let kv = KeyValue {
            key: key.clone(),
            create_revision,
            mod_revision: revision,
            version,
            value,
            lease: 0,
        };
        self.keys.insert(key, kv);
        Change { revision, previous }
    }

    /// The first `limit` keys of a range, and how many it has.
    #[must_use]
    pub fn range(&self, range: &KeyRange, limit: usize) -> Found {
        let found = || range.bounds().map(|bounds| self.keys.range(bounds));
        let kvs = found().into_iter().flatten().take(limit).map(|(_, kv)| kv.clone());
        Found {
            revision: self.revision,
            kvs: kvs.collect(),
            count: found().map_or(0, Iterator::count),
        }
    }

    /// Deletes a range, which is a change when it holds a key.
    pub fn delete(&mut self, range: &KeyRange) -> Change<Vec<KeyValue>> {
        let previous = self.range(range, usize::MAX).kvs;
        for kv in &previous {
            self.keys.remove(&kv.key);
        }
        self.revision += i64::from(!previous.is_empty());
        Change { revision: self.revision, previous }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn store(keys: &[&'static str]) -> Store {
        let mut store = Store::default();
        for key in keys {
            store.put((*key).into(), format!("value of {key}").into());
        }
        store
    }

    #[test]
    fn a_key_counts_its_changes_and_begins_anew_when_it_was_deleted() {
        let mut store = Store::default();
        assert_eq!(store.put("k".into(), "1".into()).previous, None);
        let second = store.put("k".into(), "2".into());
        assert_eq!((second.revision, second.previous.unwrap().value), (3, "1".into()));
        let kv = store.range(&KeyRange::Single("k".into()), 1).kvs.remove(0);
        assert_eq!((kv.create_revision, kv.mod_revision, kv.version), (2, 3, 2));
        assert_eq!(store.delete(&KeyRange::Single("k".into())).revision, 4);
        store.put("k".into(), "3".into());
        let kv = store.range(&KeyRange::Single("k".into()), 1).kvs.remove(0);
        assert_eq!((kv.create_revision, kv.mod_revision, kv.version), (5, 5, 1));
    }

    #[test]
    fn a_range_is_in_order_and_counts_beyond_its_limit() {
        let store = store(&["b", "a", "c", "bb"]);
        let found = store.range(&KeyRange::Between("a".into(), "c".into()), 2);
        let keys: Vec<_> = found.kvs.iter().map(|kv| kv.key.clone()).collect();
        assert_eq!(keys, ["a", "b"]);
        assert_eq!((found.count, found.revision), (3, 5));
        assert_eq!(store.range(&KeyRange::Between("c".into(), "a".into()), 9).count, 0);
    }

    #[test]
    fn a_deletion_of_nothing_is_no_change() {
        let mut store = store(&["a", "b", "c"]);
        assert_eq!(store.delete(&KeyRange::Single("x".into())).revision, 4);
        let deleted = store.delete(&KeyRange::From("b".into()));
        assert_eq!((deleted.revision, deleted.previous.len()), (5, 2));
        assert_eq!(store.range(&KeyRange::From("\0".into()), usize::MAX).count, 1);
    }

    #[test]
    fn values_are_stored_and_found_without_a_copy() {
        let mut store = Store::default();
        let value = Bytes::from(vec![7; 1000]);
        store.put("k".into(), value.clone());
        let found = store.range(&KeyRange::Single("k".into()), 1);
        assert_eq!(found.kvs[0].value.as_ptr(), value.as_ptr());
    }
}
