//! All settings have one style, read from the page of the public interface, `farcall/tests/api.md`.
//!
//! A value (`Limits`) is `#[non_exhaustive]` and has fields that are read, and `with_` for each. A
//! builder has a setter by a setting's name. `ServerBuilder::settings` returns what they come to; a
//! channel's builder has `get_` for each, as tonic's `Endpoint`.
#![allow(clippy::unwrap_used, reason = "a failed test is how these tests report")]

/// The items of the page whose path ends with `name`: their declarations.
fn section<'a>(page: &'a str, name: &str) -> &'a str {
    let mut sections = page.split("\n## `").skip(1);
    let is_of = |section: &&str| {
        let path = section.split('`').next().unwrap();
        path.rsplit("::").next() == Some(name)
    };
    sections.find(is_of).unwrap_or_else(|| panic!("farcall/tests/api.md has no {name}"))
}

fn page() -> String {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/api.md");
    std::fs::read_to_string(file).unwrap()
}

/// The name of a public function, and the rest of its head.
fn functions(section: &str) -> impl Iterator<Item = (&str, &str)> {
    section.lines().filter_map(|line| {
        let head = line.strip_prefix("pub ")?.trim_start_matches("const ").strip_prefix("fn ")?;
        let end = head.find(['(', '<'])?;
        Some((&head[..end], &head[end..]))
    })
}

/// The fields of a struct, with its types.
fn fields(section: &str) -> Vec<&str> {
    let fields = section.lines().filter_map(|line| line.strip_prefix("    pub "));
    fields.filter_map(|field| field.split(':').next()).collect()
}

#[test]
fn each_setting_has_a_setter_of_its_name() {
    let page = page();
    for (builder, settings) in
        [("ServerBuilder", "ServerSettings"), ("ChannelBuilder", "ChannelSettings")]
    {
        let names: Vec<&str> = functions(section(&page, builder)).map(|(name, _)| name).collect();
        let fields = fields(section(&page, settings));
        assert!(fields.len() > 5, "{fields:?}");
        for field in fields.iter().filter(|field| **field != "base") {
            assert!(names.contains(field), "there is no setter {field}");
        }
        assert!(names.contains(&"settings") && names.iter().all(|name| !name.starts_with("get_")));
    }
}

#[test]
fn every_field_of_a_value_has_a_setter_and_others_may_follow() {
    let page = page();
    for value in ["Limits", "Keepalive", "Backoff", "RdmaConfig", "ConnectOptions"] {
        let section = section(&page, value);
        assert!(section.contains("#[non_exhaustive]"), "{value}");
        let names: Vec<&str> = functions(section).map(|(name, _)| name).collect();
        let fields = fields(section);
        assert!(fields.len() > 1, "{value}: {fields:?}");
        for field in fields {
            let setter = format!("with_{field}");
            assert!(names.contains(&setter.as_str()), "{value} has no {setter}");
        }
    }
}

#[test]
fn limits_are_called_as_in_tonic_and_hyper() {
    for (name, _) in functions(&page()) {
        assert!(!name.ends_with("_max"), "{name}: the word comes first, as in `max_calls`");
    }
}
