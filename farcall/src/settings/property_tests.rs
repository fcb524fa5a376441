//! Any file and any environment give settings or an error at the right place, and no panic.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

use super::error::SettingsFault;
use super::places::dotted;
use super::*;

/// Values of every kind, at the ends of ranges and beyond them.
pub(super) const VALUES: &[&str] = &[
    "0",
    "1",
    "2",
    "3",
    "7",
    "100",
    "447",
    "448",
    "65535",
    "65536",
    "65537",
    "131072",
    "1000000000",
    "1000000001",
    "4294967295",
    "4294967296",
    "9223372036854775807",
    "18446744073709551615",
    "99999999999999999999999999999999999999999",
    "-1",
    "-9223372036854775808",
    "0x10",
    "0.0",
    "-0.0",
    "0.5",
    "1.0",
    "1e308",
    "1e999",
    "nan",
    "-nan",
    "inf",
    "-inf",
    "true",
    "false",
    "1979-05-27",
    "07:32:00",
    "1979-05-27T07:32:00Z",
    "[]",
    "{}",
    "[1]",
    "[\"mlx5_0\"]",
    "[[]]",
    "{ a = 1 }",
    "{ max_calls = 0 }",
    "{ interval = \"1ms\" }",
    "\"\"",
    "\" \"",
    "\"off\"",
    "\"0s\"",
    "\"1ns\"",
    "\"500ms\"",
    "\"10s\"",
    "\"10m\"",
    "\"24h\"",
    "\"30h\"",
    "\"365days\"",
    "\"366days\"",
    "\"1e400s\"",
    "\"99999999999999years\"",
    "\"584542046090years\"",
    "\"18446744073709551615s 1s\"",
    "\"1 \u{fb}s\"",
    "\"-1\"",
    "\"64 MiB\"",
    "\"1e30 TiB\"",
    "\"999999999999999999 EiB\"",
    "\"..\"",
    "\"1 MiB\u{fc}\"",
    "\"tcp://h:1\"",
    "\"auto://[::1]:7000\"",
    "\"rdma://\"",
    "\"unix://\"",
    "\"inproc://x\"",
    "\"window\"",
    "\"region\"",
    "\"nearest\"",
    "'\u{1f980}'",
    "\"\"\"\n\"\"\"",
    "\"\\u00e9\"",
    "\"unclosed",
    "]",
];

/// Every key of the reference, with its tables, and some that are none.
pub(super) fn keys() -> Vec<String> {
    let (mut table, mut keys) = (String::new(), Vec::new());
    for line in Settings::reference().lines() {
        if let Some(name) = line.strip_prefix('[') {
            table = name.trim_end_matches(']').to_owned();
            keys.push(table.clone());
        } else if let Some((key, _)) = line.strip_prefix("# ").and_then(|it| it.split_once(" = ")) {
            keys.push(format!("{table}.{key}"));
        }
    }
    let is_default = |key: &String| {
        let target = key.replace("targets.inventory", "defaults.target");
        target.replace("servers.orders", "defaults.server")
    };
    let defaults: Vec<_> = keys.iter().map(is_default).collect();
    keys.extend(defaults);
    keys.extend(["targets", "servers", "defaults", "colour", "targets.x.y.z"].map(str::to_owned));
    keys
}

pub(super) fn assignments(max: usize) -> impl Strategy<Value = Vec<(String, &'static str)>> {
    vec((select(keys()), select(VALUES)), 0..max)
}

fn variable(key: &str) -> String {
    format!("FARCALL__{}", key.replace('.', "__").to_uppercase())
}

/// Checks that everything an error points at is in the text.
fn assert_shown(error: &SettingsError) {
    use miette::Diagnostic as _;
    if let (Some(labels), Some(source)) = (error.labels(), error.source_code()) {
        for label in labels {
            source.read_span(label.inner(), 1, 1).expect("the place is in the text");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    /// Most of these texts are no TOML.
    #[test]
    fn no_text_makes_the_reader_panic(
        text in r#"(\PC|[\[\]{}="'.,# \n\r\t\u{feff}a0-]){0,40}"#,
        value in r#"(\PC|[\[\]{}="'.,# \n\r\ta0-]){0,12}"#,
    ) {
        let variable = ("FARCALL__TARGETS__A".to_owned(), value);
        for text in [format!("[targets.a]\naddress = {text}"), text] {
            for environment in [vec![], vec![variable.clone()]] {
                if let Err(error) = Settings::new("f", &text, environment.into_iter()) {
                    assert_shown(&error);
                }
            }
        }
    }

    /// Whatever passes the tables' checks passes the setters', which would panic.
    #[test]
    fn every_value_of_every_key_is_taken_or_refused_at_its_line(
        file in assignments(4),
        environment in assignments(3),
    ) {
        let addresses = ["targets.inventory", "servers.orders"];
        let mut lines = addresses.map(|it| format!("{it}.address = \"tcp://h:1\"")).to_vec();
        lines.extend(file.iter().map(|(key, value)| format!("{key} = {value}")));
        let variables = environment.iter().map(|(key, value)| (variable(key), (*value).to_owned()));
        let text = lines.join("\n");
        match Settings::new("f", &text, variables) {
            Err(error) => match (error.line(), error.key(), error.fault()) {
                (Some(line), Some(named), SettingsFault::File(_)) => {
                    let line = text.split('\n').nth(line - 1).expect("a line of the text");
                    let key = line.split(" = ").next().unwrap_or_default();
                    // A value may be a table with keys of its own, and a table may be unknown.
                    let is_of_line = named.starts_with(key) || key.starts_with(named);
                    prop_assert!(is_of_line, "{error}: {line}");
                }
                (_, _, SettingsFault::Variable { variable: name, .. }) => {
                    prop_assert!(environment.iter().any(|(key, _)| variable(key) == *name));
                }
                _ => assert_shown(&error),
            },
            Ok(settings) => {
                for name in settings.targets() {
                    settings.channel(&name).unwrap();
                }
            }
        }
    }
}

fn error_of(text: &str, environment: &[(&str, &str)]) -> String {
    let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
    let settings = Settings::new("farcall.toml", text, environment.iter().map(owned));
    settings.unwrap_err().to_string()
}

/// The longest name that Linux takes has tens of thousands of tables in it.
#[test]
fn a_variable_of_many_tables_is_an_unknown_setting() {
    let name = format!("FARCALL__{}", "A__".repeat(43_000));
    assert!(error_of("", &[(&name, "1")]).contains("there is no setting `a`"));
    let name = format!("FARCALL__TARGETS__{}", "A__".repeat(43_000));
    assert!(error_of("[targets.a]", &[(&name, "1")]).contains("there is no setting `a`"));
}

const SHORT: &str = "[targets.\"a.b\"]\naddress = \"tcp://h:1\"\n";

#[test]
fn contradicting_values_are_found_at_their_places() {
    let delay = "connect_backoff.max_delay";
    let text = format!("{SHORT}{delay} = \"500ms\"\n");
    let place = "farcall.toml:3:29: targets.\"a.b\".connect_backoff.max_delay: is 500ms, but ";
    let error = error_of(&text, &[]);
    assert!(error.starts_with(place), "{error}");

    let text = format!("{SHORT}[defaults.target]\n{delay} = \"500ms\"\n");
    let place = "farcall.toml:4:29: defaults.target.connect_backoff.max_delay: is 500ms, but ";
    let error = error_of(&text, &[]);
    assert!(error.starts_with(place), "{error}");
}

#[test]
fn a_variable_is_named_whose_value_cannot_be_with_others() {
    let text = "[targets.a]\naddress = \"tcp://h:1\"\nconnect_backoff.max_delay = \"60s\"\n";
    for (name, value) in [
        ("FARCALL__TARGETS__A__CONNECT_BACKOFF__MAX_DELAY", "500ms"),
        ("FARCALL__TARGETS__A__CONNECT_BACKOFF", "{ max_delay = \"500ms\" }"),
        #[cfg(all(target_os = "linux", any(feature = "rdma", feature = "sim")))]
        ("FARCALL__RDMA__RECEIVE_SLOTS", "2"),
    ] {
        let error = error_of(text, &[(name, value)]);
        assert!(error.starts_with(&format!("environment variable {name}: is ")), "{error}");
    }
}

#[test]
fn a_variable_prefers_the_key_with_underscores() {
    let text = "[targets.a-b]\naddress = \"tcp://h:1\"\n[targets.a_b]\naddress = \"tcp://h:2\"\n";
    let variable = ("FARCALL__TARGETS__A_B__ADDRESS".to_owned(), "tcp://h:3".to_owned());
    let settings = Settings::new("f", text, std::iter::once(variable)).unwrap();
    let address = |name| settings.channel_builder(name).unwrap().address().to_string();
    assert_eq!([address("a-b"), address("a_b")], ["tcp://h:1", "tcp://h:3"]);
}

#[test]
fn counts_and_times_may_be_all_that_the_setters_take() {
    let text = "[servers.a]\naddress = \"tcp://h:1\"\ndrain_timeout = \"0s\"\n\
                max_calls_per_peer = 18446744073709551615\n";
    drop(Settings::parse("f", text).unwrap().server("a").unwrap());
}

const NAMED: &str = "[targets.a]\naddress = \"tcp://h:1\"\nmethods.\"*\".timeout = \"1s\"\n\
                     [servers.a]\naddress = \"tcp://h:1\"\n";

/// The keys that no file sets, with the text that says so.
fn keys_elsewhere() -> Vec<(String, String)> {
    let (settings, mut all) = (Settings::parse("f", NAMED).unwrap(), Vec::new());
    let root = &settings.shared.loaded().root;
    root.each_key(&mut Vec::new(), &mut |names, elsewhere| {
        all.extend(elsewhere.map(|text| (dotted(names), text)));
    });
    all
}

#[test]
fn keys_that_left_the_file_fail_at_their_place() {
    let all = keys_elsewhere();
    assert!(all.iter().any(|(key, _)| key == "targets.a.limits.max_stream_messages"));
    for (key, message) in all {
        assert!(message.starts_with("not a setting of the file; "), "{message}");
        let error = Settings::parse("f", &format!("# Keys.\n{key} = 1\n")).unwrap_err();
        let column = key.rfind('.').unwrap() + 2;
        let expected = format!("f:2:{column}: {key}: {message}");
        assert!(error.to_string().lines().any(|line| line == expected), "{error}\n{expected}");
        // No variable has the name of a method.
        if key.contains('"') {
            continue;
        }
        let variable = variable(&key);
        for name in [variable.clone(), variable.replace("__", "_")] {
            let environment = std::iter::once((name.clone(), "1".to_owned()));
            let error = Settings::new("f", NAMED, environment).unwrap_err().to_string();
            assert_eq!(error, format!("environment variable {name}: {message}"));
        }
    }
}
