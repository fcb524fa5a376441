//! Variables of the environment that would set nothing, in silence: of a target or server that the
//! file does not have, and with a single underscore where two belong.

use rpc_core::settings::Table as _;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::error::{SettingsError, SettingsFault};
use super::places::dotted;
use super::table::unknown;
use super::tables::Root;

/// Prefix of a variable's name. Two underscores separate the names of tables.
pub(super) const PREFIX: &str = "FARCALL__";

/// The tables of which the file chooses the names, and what has such a name.
const NAMED: [(&str, &str); 2] = [("targets", "target"), ("servers", "server")];

/// Prefix of all our variables, including those with wrong underscores.
const FARCALL: &str = "FARCALL_";

/// Checks that the file has the target or server that a variable is about. `names` are the parts of
/// the variable's name.
///
/// # Errors
///
/// Returns [`SettingsError`] if it does not.
pub(super) fn check_named(
    variable: &str,
    names: &[&str],
    file: &DeTable<'_>,
    origin: &str,
) -> Result<(), SettingsError> {
    let [table, name, _, ..] = names else { return Ok(()) };
    let table = table.to_ascii_lowercase();
    let Some((table, kind)) = NAMED.into_iter().find(|(named, _)| *named == table) else {
        return Ok(());
    };
    let empty = DeTable::new();
    let in_file = match file.get(table).map(Spanned::get_ref) {
        Some(DeValue::Table(in_file)) => in_file,
        // The reader says what is wrong with it.
        Some(_) => return Ok(()),
        None => &empty,
    };
    let name = existing(in_file, name);
    if in_file.contains_key(name.as_str()) {
        return Ok(());
    }
    let known: Vec<&str> = in_file.keys().map(|key| key.get_ref().as_ref()).collect();
    let message = format!(
        "{} ({origin} needs a table [{table}.{name}], which may be empty)",
        unknown(kind, &name, known.into_iter())
    );
    Err(SettingsFault::Variable { variable: variable.to_owned(), message }.into())
}

/// Checks the variables that do not begin as ours do: none may have the parts of a setting's.
///
/// # Errors
///
/// Returns [`SettingsError`] if one has.
pub(super) fn check_others<'a>(
    root: &Root,
    variables: impl Iterator<Item = &'a str>,
) -> Result<(), SettingsError> {
    let mut ours: Vec<&str> = variables.filter(|name| name.starts_with(FARCALL)).collect();
    ours.sort_unstable();
    ours.into_iter().try_for_each(|variable| match meant(root, variable) {
        Some(message) => {
            Err(SettingsFault::Variable { variable: variable.to_owned(), message }.into())
        }
        None => Ok(()),
    })
}

/// The key that a variable means: the one in lower case with underscores if it is there, else one
/// that differs from it in case and hyphens only, else a new one.
pub(super) fn existing(table: &DeTable<'_>, name: &str) -> String {
    let plain = |name: &str| name.to_ascii_lowercase().replace('-', "_");
    let wanted = plain(name);
    if table.contains_key(wanted.as_str()) {
        return wanted;
    }
    let found = table.keys().map(Spanned::get_ref).find(|key| plain(key) == wanted);
    found.map_or(wanted, |key| key.clone().into_owned())
}

/// Returns the name that a variable with single underscores was probably meant to have. `None` if
/// it is not about settings.
fn meant(root: &Root, variable: &str) -> Option<String> {
    let mut found = None;
    root.each_key(&mut Vec::new(), &mut |names, elsewhere| {
        let right = format!("{PREFIX}{}", names.join("__")).to_ascii_uppercase().replace('-', "_");
        if with_single_underscores(&right) == with_single_underscores(variable) {
            found = Some(elsewhere.unwrap_or_else(|| {
                let key = dotted(names);
                format!("separate the parts with two underscores: {right} sets {key}")
            }));
        }
    });
    let is_of_table = || {
        let rest = &variable[FARCALL.len()..];
        ["TARGETS_", "SERVERS_", "DEFAULTS_"].iter().any(|table| rest.starts_with(table))
    };
    found.or_else(|| {
        is_of_table().then(|| {
            "sets nothing: separate the parts with two underscores, as in \
             FARCALL__TARGETS__INVENTORY__TIMEOUT"
                .to_owned()
        })
    })
}

fn with_single_underscores(variable: &str) -> String {
    let parts: Vec<&str> = variable.split('_').filter(|part| !part.is_empty()).collect();
    parts.join("_")
}
