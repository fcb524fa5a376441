//! Passes the values of tables to setters, and reports values out of range.

use rpc_core::InvalidSetting;

/// Gives a value to a setter if the table has one.
macro_rules! set {
    ($target:ident, $($value:expr => $setter:ident;)*) => {
        $(let $target = match $value {
            Some(value) => $target.$setter(value),
            None => $target,
        };)*
    };
}

pub(super) use set;

/// A value that cannot be, or not with others.
#[derive(Debug)]
pub(super) struct Invalid {
    /// Its key, from the table of its target or server on.
    pub(super) key: Vec<String>,
    pub(super) value: String,
    pub(super) rule: String,
}

impl Invalid {
    /// The same in a table within that of the target or server.
    pub(super) fn within(tables: &[&str], error: &InvalidSetting) -> Self {
        let names = tables.iter().copied().chain(error.name().split('.'));
        let (value, rule) = (error.value().to_owned(), error.rule().to_owned());
        Self { key: names.map(ToOwned::to_owned).collect(), value, rule }
    }
}

/// The values of a target or server that cannot be, or not with others. Each has a default in its
/// place, so that the rest is checked, too.
#[derive(Debug, Default)]
pub(super) struct Conflicts(pub(super) Vec<Invalid>);

impl Conflicts {
    /// Returns the value in a table within that of the target or server, or the default in the
    /// place of one that cannot be.
    pub(super) fn value_within<T: Default>(
        &mut self,
        tables: &[&str],
        checked: Result<T, InvalidSetting>,
    ) -> T {
        checked.unwrap_or_else(|error| {
            self.0.push(Invalid::within(tables, &error));
            T::default()
        })
    }
}

impl From<InvalidSetting> for Invalid {
    fn from(error: InvalidSetting) -> Self {
        Self::within(&[], &error)
    }
}
