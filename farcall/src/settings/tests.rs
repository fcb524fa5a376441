//! Accepted and rejected files, and the messages for readers.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use rpc_core::client::attempts::ServiceConfig;

use super::error::SettingsFault;
use super::*;
use crate::balance::Policy;
use crate::resolve::{CustomScheme, StaticEndpoints};
use crate::retry::{HedgingPolicy, MethodConfig, RetryBudget, RetryPolicy};
use crate::{Address, AddressError, Path as CallPath};

fn read(text: &str, environment: &[(&str, &str)]) -> Result<Settings, SettingsError> {
    let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
    Settings::new("farcall.toml", text, environment.iter().map(owned))
}

const TWO: &str = r#"
[defaults.target]
timeout = "3s"
limits.max_calls = 7

[targets.inventory]
address = "tcp://127.0.0.1:7000"
limits.max_message_len = "64 MiB"

[targets.billing]
address = "unix:///run/billing.sock"
timeout = "off"
"#;

#[test]
fn a_target_has_its_own_settings_and_the_defaults_of_the_others() {
    let settings = read(TWO, &[]).unwrap();
    assert_eq!(settings.targets().collect::<Vec<_>>(), ["billing", "inventory"]);
    let inventory = settings.channel_builder("inventory").unwrap();
    let billing = settings.channel_builder("billing").unwrap();
    let of = |builder: &ChannelBuilder| {
        let limits = builder.settings().limits;
        (limits.max_calls, limits.max_message_len)
    };
    assert_eq!((of(&inventory), of(&billing)), ((7, 64 << 20), (7, 4 << 20)));
    assert_eq!(inventory.settings().timeout, Some(Duration::from_secs(3)));
    assert_eq!(billing.settings().timeout, None);
}

#[test]
fn the_environment_replaces_what_the_file_says() {
    let environment = [
        ("FARCALL__TARGETS__INVENTORY__ADDRESS", "auto://10.0.0.1:7000"),
        ("FARCALL__TARGETS__INVENTORY__LIMITS__MAX_CALLS", "9"),
        ("FARCALL__TARGETS__EMPTY__ADDRESS", "inproc://new"),
        ("FARCALL__RDMA__DEVICES", "[\"mlx5_0\"]"),
        ("FARCALL_RDMA", "another program's"),
    ];
    let settings = read(&format!("{TWO}\n[targets.empty]\n"), &environment).unwrap();
    let inventory = settings.channel_builder("inventory").unwrap();
    assert_eq!(inventory.address(), &Address::Auto("10.0.0.1:7000".to_owned()));
    assert_eq!(inventory.settings().limits.max_calls, 9);
    assert_eq!(settings.targets().count(), 3);
    #[cfg(all(target_os = "linux", any(feature = "rdma", feature = "sim")))]
    assert_eq!(
        settings.shared.loaded().root.rdma.devices.as_deref(),
        Some(&["mlx5_0".to_owned()][..])
    );
}

/// Mistakes in the tables of balancing and of methods.
#[cfg(all(target_os = "linux", any(feature = "rdma", feature = "sim")))]
fn method_mistakes(target: &str) -> [String; 9] {
    [
        format!("{target}balance.policy = \"random\"\n"),
        format!("{target}balance.outlier_detection.max_ejection_percent = 101\n"),
        format!("{target}methods.Get.timeout = \"1s\"\nmethods.\"/Get\".timeout = \"1s\"\n"),
        format!("{target}methods.\"*\".retry.max_attempts = 9\n"),
        format!("{target}methods.\"*\".retry.initial_backoff = \"1s\"\n"),
        format!("{target}methods.\"*\".retry.retryable_codes = [\"UNAVAILABLY\"]\n"),
        format!(
            "{target}[targets.inventory.methods.\"shop.Cart/Get\"]\n\
             retry = {{ max_attempts = 2, initial_backoff = \"5s\" }}\n"
        ),
        format!(
            "{target}[targets.inventory.methods.\"*\"]\n\
             retry.max_attempts = 2\nhedging.max_attempts = 2\n"
        ),
        format!("{target}retry_budget.ratio = 11.0\n"),
    ]
}

/// All that a reader may be told, in one file that people read: `tests/messages/settings.txt`. It
/// has the table `rdma`, which a build without RDMA ignores.
#[cfg(all(target_os = "linux", any(feature = "rdma", feature = "sim")))]
#[test]
fn errors_name_their_place_and_the_fix() {
    let target = "[targets.inventory]\naddress = \"tcp://127.0.0.1:1\"\n";
    let cases = [
        "[targets.inventory\n".to_owned(),
        "[targts.inventory]\n".to_owned(),
        "[targets.inventory]\ntimeout = \"1s\"\n".to_owned(),
        "[targets.inventory]\naddress = \"http://inventory:7000\"\n".to_owned(),
        "[targets.inventory]\naddress = 7000\n".to_owned(),
        format!("{target}timout = \"1s\"\n"),
        format!("{target}colour = \"red\"\n"),
        format!("{target}timeout = 10\n"),
        format!("{target}timeout = \"10\"\n"),
        format!("{target}timeout = \"0s\"\n"),
        format!("{target}wait_for_ready = \"yes\"\n"),
        format!("{target}limits.max_calls = 0\n"),
        format!("{target}limits.max_calls = -1\n"),
        format!("{target}limits.max_calls = 5_000_000_000\n"),
        format!("{target}limits.max_message_len = \"4 miles\"\n"),
        format!("{target}limits.max_stream_bytes = \"5 GiB\"\n"),
        format!("{target}keepalive.interval = \"1ms\"\n"),
        format!("{target}connect_backoff.multiplier = 0.5\n"),
        format!("{target}keepalive.enabled = false\n"),
        format!("{target}keepalive.interval = \"never\"\n"),
        format!("{target}[targets.inventory.replays]\nmax_burst = 0\n"),
        "[rdma]\nlanes = 2\n  send_depth = 7\nconnect.rnr_timer = 1\n".to_owned(),
        format!("{target}connect_backoff.initial_delay = \"10m\"\n"),
        format!("{target}connect_backoff.initial_delay = \"30h\"\n"),
        format!("{target}path_backoff.max_delay = \"0s\"\n"),
        format!("{target}path_backoff.max_delay = \"100ms\"\n"),
        "[servers.orders]\naddress = \"::1:7000\"\n".to_owned(),
        "[servers.orders]\naddress = \"auto://[::1]:7000\"\nmax_calls = 0\n".to_owned(),
        "[servers.orders]\naddress = \"auto://[::1]:7000\"\ncores = \"many\"\n".to_owned(),
        "[servers.orders]\naddress = \"auto://[::1]:7000\"\ncores = -1\n".to_owned(),
        "[servers.orders]\naddress = \"auto://[::1]:7000\"\ncores = 1025\n".to_owned(),
        "[servers.orders]\naddress = \"auto://[::1]:7000\"\ncores = 1.5\n".to_owned(),
        format!("{target}per_runtime = true\n"),
        "[rdma]\nrkey_scope = \"none\"\n".to_owned(),
        "[rdma]\nlanes = 0\n".to_owned(),
        "[rdma]\nslot_len = 100\n".to_owned(),
        "[rdma]\ndevices = \"mlx5_0\"\n".to_owned(),
    ];
    let mut transcript = String::new();
    for case in cases.iter().chain(&method_mistakes(target)) {
        let error = read(case, &[]).unwrap_err();
        write!(transcript, "{case}--> {error}\n\n").unwrap();
    }
    for (variable, value) in [
        ("FARCALL__TARGETS__INVENTORY__TIMEOUT", "soon"),
        ("FARCALL__TARGETS__INVENTORY__TIMOUT", "1s"),
        ("FARCALL__RDMA__SEND_DEPTH", "7"),
        ("FARCALL_RDMA_SEND_DEPTH", "7"),
        ("FARCALL__TARGETS__INVENTORY__REPLAYS__PER_SECOND", "7"),
        ("FARCALL__RDMA", "off"),
        ("FARCALL__RDMA__DEVICES", "mlx5_0"),
        ("FARCALL__TARGETS__INVENTRY__ADDRESS", "tcp://127.0.0.1:2"),
        ("FARCALL__SERVERS__ORDERS__ADDRESS", "tcp://127.0.0.1:2"),
        ("FARCALL_TARGETS_INVENTORY_TIMEOUT", "1s"),
        ("FARCALL_TARGETS__INVENTORY__LIMITS__MAX_CALLS", "9"),
        ("FARCALL_TARGETS_BILLING_TIMEOUT", "1s"),
        ("FARCALL_DEFAULTS_SERVER_MAX_CALLS", "9"),
        ("FARCALL_RDMA_DEVICES", "[]"),
    ] {
        let error = read(target, &[(variable, value)]).unwrap_err();
        write!(transcript, "{variable}={value}\n--> {error}\n\n").unwrap();
    }
    let settings = read(TWO, &[]).unwrap();
    writeln!(transcript, "--> {}", settings.channel("inventry").unwrap_err()).unwrap();
    writeln!(transcript, "--> {}", settings.server("orders").unwrap_err()).unwrap();
    assert_is_file("tests/messages/settings.txt", &transcript);
}

#[test]
fn all_mistakes_are_reported_each_with_its_line() {
    let text = "[targets.a]\naddress = \"tcp//a\"\ntimout = \"1s\"\nlimits.max_calls = 0\n\
                [targets.b]\naddress = \"tcp://b:1\"\n\
                connect_backoff = { initial_delay = \"1h\", max_delay = \"1s\" }\n\
                [targets.c]\n\
                [servers.d]\naddress = 7\n\
                [serverz.e]\n";
    let environment = [("FARCALL__TARGETS__F__TIMEOUT", "1s"), ("FARCALL__RDMA__LANES", "0")];
    let error = read(text, &environment).unwrap_err();
    let SettingsFault::Several { mistakes } = error.fault() else { panic!("{error}") };
    let lines = mistakes.iter().filter_map(SettingsError::line);
    let place = (error.line(), error.column(), error.key());
    assert_eq!(place, (Some(2), Some(11), Some("targets.a.address")));
    assert_eq!(lines.collect::<Vec<_>>(), [2, 3, 4, 7, 10, 11], "{error}");
    let text = error.to_string();
    assert_eq!(text.lines().count(), mistakes.len());
    for part in ["TARGETS__F__TIMEOUT", "targets.c has no `address`"] {
        assert!(text.contains(part), "{text}");
    }
    // A build without RDMA ignores its table.
    let has_rdma = cfg!(any(feature = "rdma", feature = "rdma-sys", feature = "sim"));
    assert_eq!(text.contains("FARCALL__RDMA__LANES"), has_rdma, "{text}");
    // What lacks its address for a mistake is not said to have none.
    assert!(!text.contains("targets.a has no"), "{text}");
}

/// Keys that cannot be together: two in one table, in two tables of a target, and beside a value
/// that cannot be read.
#[test]
fn every_conflict_of_keys_is_reported() {
    let text = "[targets.a]\naddress = \"tcp://a:1\"\ntimeout = 1\n\
                connect_backoff = { initial_delay = \"1h\", max_delay = \"1s\" }\n\
                path_backoff = { initial_delay = \"1h\", max_delay = \"2s\" }\n\
                require_encryption = true\n\
                [targets.a.methods.\"shop.Cart/Get\"]\n\
                retry = { max_attempts = 2, initial_backoff = \"5s\" }\n\
                [targets.a.methods.\"shop.Cart/Put\"]\nretry.max_backoff = \"1s\"\n\
                hedging.hedging_delay = \"1s\"\n\
                [targets.a.methods.\"/Get\"]\ntimeout = \"1s\"\n\
                [targets.b]\nconnect_backoff = { initial_delay = \"1h\", max_delay = \"1s\" }\n\
                [servers.c]\naddress = \"unix://@c\"\nmethods.\"/Get\".compress_from = 1\n\
                methods.\"/Put\".compress_from = 1\nproxy_protocol.from = [\"::1\"]\n";
    let error = read(text, &[]).unwrap_err().to_string();
    for part in [
        "3:11: targets.a.timeout",
        "4:55: targets.a.connect_backoff.max_delay",
        "5:52: targets.a.path_backoff.max_delay",
        "6:22: targets.a.require_encryption",
        "targets.a.methods.\"shop.Cart/Get\".retry.max_backoff",
        "targets.a.methods.\"shop.Cart/Put\".retry.max_attempts",
        "targets.a.methods.\"shop.Cart/Put\".hedging.max_attempts",
        "targets.a.methods.\"/Get\": is \"/Get\"",
        "targets.b has no `address`",
        "15:55: targets.b.connect_backoff.max_delay",
        "18:32: servers.c.methods.\"/Get\".compress_from",
        "19:32: servers.c.methods.\"/Put\".compress_from",
        "20:23: servers.c.proxy_protocol.from",
    ] {
        assert!(error.contains(part), "{part} in:\n{error}");
    }
    assert_eq!(error.lines().count(), 13, "{error}");
}

/// A key that was left out for a mistake is not said to be missing.
#[test]
fn conflict_with_a_mistaken_key_is_not_reported() {
    let text = "[targets.a]\naddress = \"tcp://a:1\"\ntls.cert = 7\ntls.key = \"k\"\n\
                methods.\"*\".retry = { max_attempts = 0, max_backoff = \"5s\" }\n";
    let error = read(text, &[]).unwrap_err().to_string();
    assert_eq!(error.lines().count(), 2, "{error}");
}

#[cfg(all(target_os = "linux", any(feature = "rdma", feature = "sim")))]
#[test]
fn every_conflict_of_the_table_rdma_is_reported() {
    let text = "[rdma]\nmax_source_bytes = 1000\nmax_sink_bytes = 1000\n";
    let error = read(text, &[]).unwrap_err().to_string();
    assert!(error.contains("2:20: rdma.max_source_bytes"), "{error}");
    assert!(error.contains("3:18: rdma.max_sink_bytes"), "{error}");
}

#[cfg(feature = "tls")]
#[test]
fn every_file_of_tls_that_is_wrong_is_reported() {
    let text = "[servers.a]\naddress = \"tcp://127.0.0.1:0\"\n\
                tls = { cert = \"/none/c\", key = \"/none/k\", client_ca = \"/none/ca\" }\n\
                [servers.b]\naddress = \"tcp://127.0.0.1:0\"\n\
                tls = { cert = \"/none/c\", client_certs = \"optional\" }\n\
                [targets.c]\naddress = \"tcp://127.0.0.1:0\"\n\
                tls = { cert = \"/none/c\", key = \"/none/k\", ca = \"/none/ca\", \
                server_name = \"\" }\n";
    let error = read(text, &[]).unwrap_err().to_string();
    for part in [
        "servers.a.tls.cert: cannot read /none/c",
        "servers.a.tls.key: cannot read /none/k",
        "servers.a.tls.client_ca: cannot read /none/ca",
        "servers.b.tls.cert: set without `tls.key`",
        "servers.b.tls.client_certs: set without `tls.client_ca`",
        "targets.c.tls.cert: cannot read /none/c",
        "targets.c.tls.key: cannot read /none/k",
        "targets.c.tls.ca: cannot read /none/ca",
        "targets.c.tls.server_name: ``",
    ] {
        assert!(error.contains(part), "{part} in:\n{error}");
    }
    assert_eq!(error.lines().count(), 9, "{error}");
}

#[test]
fn mistake_in_the_defaults_is_reported_once() {
    let text = "[defaults.target.connect_backoff]\ninitial_delay = \"1h\"\nmax_delay = \"1s\"\n\
                [targets.a]\naddress = \"tcp://a:1\"\n[targets.b]\naddress = \"tcp://b:1\"\n";
    let error = read(text, &[]).unwrap_err();
    assert_eq!((error.line(), error.to_string().lines().count()), (Some(3), 1), "{error}");
}

#[test]
fn every_line_that_is_no_toml_is_reported() {
    let error = read("[targets.a\naddress = \"tcp://a:1\"\ntimeout = = 1\n", &[]).unwrap_err();
    let text = error.to_string();
    assert!(text.contains("farcall.toml:1:") && text.contains("farcall.toml:3:"), "{text}");
}

/// The reference with every key set.
pub(super) fn uncommented(reference: &str) -> String {
    let is_setting = |line: &str| line.starts_with("# ") && line.contains(" = ");
    let mut text = String::new();
    for line in reference.lines().map(|line| match line.strip_prefix("# ") {
        Some(setting) if is_setting(line) => setting,
        _ => line,
    }) {
        writeln!(text, "{line}").unwrap();
    }
    text
}

/// The reference names every key with its default: uncommented, it changes nothing.
#[test]
fn the_reference_equals_the_docs_and_the_defaults() {
    let reference = Settings::reference();
    assert_is_file("../docs/book/src/farcall.toml", &reference);
    let said = Settings::parse("docs/book/src/farcall.toml", &uncommented(&reference)).unwrap();
    let unsaid =
        Settings::parse("nothing", "[targets.inventory]\naddress = \"tcp://h:1\"").unwrap();
    let [said, unsaid] = [&said, &unsaid].map(|it| it.channel_builder("inventory").unwrap());
    let rules = |it: &ChannelBuilder| {
        let (settings, service) = (it.settings(), it.service_config());
        format!("{settings:?} {:?}", service.budget())
    };
    assert_eq!(rules(&said), rules(&unsaid));
}

#[test]
fn delays_may_be_longer_than_the_defaults_when_both_are() {
    let text = "[targets.inventory]\naddress = \"tcp://h:1\"\n\
                connect_backoff = { initial_delay = \"10m\", max_delay = \"1h\" }\n";
    read(text, &[]).unwrap().channel("inventory").unwrap();
}

#[test]
fn methods_have_policies_and_servers_shares() {
    let text = r#"
[targets.inventory]
address = "tcp://h:1,i:1"
balance = { policy = "round_robin", slow_start = "5s", outlier_detection.threshold = "off" }
retry_budget.min_per_second = 3

[targets.inventory.methods."*"]
timeout = "2s"
retry = { max_attempts = 4, retryable_codes = ["UNAVAILABLE", "aborted"] }

[targets.inventory.methods."shop.Cart/Get"]
idempotent = true
max_response_len = "1 MiB"
hedging = { max_attempts = 3, hedging_delay = "20ms" }
"#;
    let builder = read(text, &[]).unwrap().channel_builder("inventory").unwrap();
    let codes = [crate::Code::Unavailable, crate::Code::Aborted];
    let retries = RetryPolicy::default().with_max_attempts(4).with_retryable_codes(codes);
    let ms = Duration::from_millis;
    let hedging = HedgingPolicy::default().with_max_attempts(3).with_hedging_delay(ms(20));
    let get = MethodConfig::default().with_idempotent(true).with_max_response_len(1 << 20);
    let expected = ServiceConfig::new()
        .with_method("*", MethodConfig::default().with_timeout(ms(2000)).with_retry(retries))
        .with_method("/shop.Cart/Get", get.with_hedging(hedging))
        .with_budget(RetryBudget::default().with_min_per_second(3));
    assert_eq!(builder.service_config(), &expected);
    let balance = builder.settings().balance;
    assert_eq!(balance.policy, Policy::RoundRobin);
    assert_eq!(balance.slow_start, Some(ms(5000)));
    assert_eq!(balance.outlier_detection.threshold, None);
}

#[test]
fn a_scheme_that_is_not_registered_is_named_at_its_line() {
    let text = "[targets.a]\naddress = \"etcd://127.0.0.1:2379/shop\"\n\
                [targets.b]\naddress = \"tpc://b:1\"\n\
                [targets.c]\naddress = \"rack+tcp://7\"\n\
                [targets.d]\naddress = \"rack://seven\"\n";
    let settings = read(text, &[]).unwrap();
    let error = |name: &str| settings.channel(name).unwrap_err().to_string();
    for (name, line, reason) in [
        ("a", 2, "etcd:// needs the crate farcall-etcd: register farcall_etcd::scheme() with "),
        ("b", 4, "unknown scheme: use auto, rdma, tcp, unix, inproc, grpc, grpcs, dns, etcd or "),
        ("c", 6, "unknown scheme: use "),
    ] {
        let error = error(name);
        let start = format!("farcall.toml:{line}:11: targets.{name}.address: {reason}");
        assert!(error.starts_with(&start), "{error}");
    }
    let rack = CustomScheme::new("rack", |address| match address.rest.parse::<u8>() {
        Ok(_) => Ok(StaticEndpoints::new([])),
        Err(_) => Err(AddressError::new(address.to_string(), "rack:// is followed by a number")),
    });
    let _ = settings.clone().with_scheme(rack);
    assert!(settings.channel("c").is_ok());
    let error = error("d");
    let start = "farcall.toml:8:11: targets.d.address: rack:// is followed by a number";
    assert!(error.starts_with(start), "{error}");
}

#[test]
fn a_server_at_a_scheme_of_targets_is_refused() {
    for address in ["tpc://0.0.0.0:1", "etcd://127.0.0.1:2379/shop"] {
        let text = format!("[servers.orders]\naddress = \"{address}\"\n");
        let error = read(&text, &[]).unwrap_err().to_string();
        let start = "farcall.toml:2:11: servers.orders.address: a server listens at auto://, \
                     rdma://, ";
        assert!(error.starts_with(start), "{error}");
    }
}

/// A server whose key has this value.
fn with_origins(origins: &str) -> Result<crate::ServerBuilder, String> {
    let text = format!(
        "[servers.orders]\naddress = \"tcp://127.0.0.1:0\"\ngrpc_web_origins = {origins}\n"
    );
    let settings = read(&text, &[]).map_err(|error| error.to_string())?;
    let server = settings.shared.loaded().server_builder("orders");
    server.map(|(_, builder)| builder).map_err(|error| error.to_string())
}

#[cfg(feature = "grpc")]
#[test]
fn origins_of_pages_are_checked_where_they_are_set() {
    let builder = with_origins("[\"https://app.example\"]").unwrap();
    assert_eq!(builder.settings().grpc_web_origins, ["https://app.example"]);
    let error = with_origins("[\"https://app.example/\"]").unwrap_err();
    let expected = "farcall.toml:3:20: servers.orders.grpc_web_origins: is \
                    \"https://app.example/\", but must be \"*\" alone, or scheme://host[:port]";
    assert!(error.starts_with(expected), "{error}");
}

#[cfg(not(feature = "grpc"))]
#[test]
fn origins_of_pages_are_refused_without_grpc() {
    with_origins("[]").unwrap();
    let error = with_origins("[\"https://app.example\"]").unwrap_err();
    let expected = "farcall.toml:3:20: servers.orders.grpc_web_origins: is \
                    [\"https://app.example\"], but must be []: this program was built without";
    assert!(error.starts_with(expected), "{error}");
}

#[test]
fn networks_of_proxies_are_checked_where_they_are_set() {
    let server = |address: &str, networks: &str| {
        let text = format!(
            "[servers.orders]\naddress = \"{address}\"\nproxy_protocol.from = {networks}\n"
        );
        let settings = read(&text, &[]).map_err(|error| error.to_string())?;
        let server = settings.shared.loaded().server_builder("orders");
        server.map(|(_, builder)| builder).map_err(|error| error.to_string())
    };
    let builder = server("tcp://127.0.0.1:0", "[\"10.0.0.0/24\", \"::1\"]").unwrap();
    assert_eq!(builder.settings().proxy_protocol.from, ["10.0.0.0/24", "::1"]);
    let error = server("tcp://127.0.0.1:0", "[\"10.0.0.0/99\"]").unwrap_err();
    let expected = "farcall.toml:3:23: servers.orders.proxy_protocol.from: is \
                    \"10.0.0.0/99\", but must be a network such as \"10.0.0.0/8\"";
    assert!(error.starts_with(expected), "{error}");
    let error = server("unix://@orders", "[\"10.0.0.0/24\"]").unwrap_err();
    let expected = "farcall.toml:3:23: servers.orders.proxy_protocol.from: proxy_protocol needs \
                    TCP";
    assert!(error.starts_with(expected), "{error}");
    server("unix://@orders", "[]").unwrap();
}

#[tokio::test]
async fn a_server_and_a_target_of_one_file_meet() {
    let text = "[targets.here]\naddress = \"inproc://settings-meet\"\n\
                [servers.here]\naddress = \"inproc://settings-meet\"\nlimits.max_calls = 3";
    let settings = read(text, &[]).unwrap();
    let (address, server) = settings.server("here").unwrap();
    let listener = server.bind(address).await.unwrap();
    tokio::spawn(listener.serve());
    let channel = settings.channel_builder("here").unwrap().connect().await.unwrap();
    assert_eq!(channel.path(), CallPath::Direct { transport: "inproc" });
}

#[test]
fn cores_are_a_number_or_all_processors() {
    let cores = |line: &str| {
        let text = format!("[servers.a]\naddress = \"tcp://127.0.0.1:0\"\n{line}");
        read(&text, &[]).unwrap().server("a").unwrap().1.settings().base.cores
    };
    let all = std::thread::available_parallelism().unwrap().get();
    assert_eq!((cores(""), cores("cores = 0"), cores("cores = 3")), (0, 0, 3));
    assert_eq!(cores("cores = \"all\"") as usize, all);
}

#[cfg(feature = "rdma")]
#[test]
fn lanes_are_a_number_or_auto() {
    let lanes = |line: &str| read(&format!("[rdma]\n{line}"), &[]).unwrap().rdma().config().lanes;
    assert_eq!(
        (lanes(""), lanes("lanes = 4"), lanes("lanes = \"auto\"")),
        (Some(1), Some(4), None)
    );
    for line in ["lanes = \"many\"", "lanes = 0", "lanes = -1"] {
        assert!(read(&format!("[rdma]\n{line}"), &[]).is_err(), "{line}");
    }
}

/// Compares with a file of the crate, which `FARCALL_WRITE_GOLDEN=1` writes anew. The files have
/// the keys of the table `rdma`, so only a build with RDMA compares.
pub(super) fn assert_is_file(path: &str, text: &str) {
    if cfg!(not(all(target_os = "linux", any(feature = "rdma", feature = "sim")))) {
        return;
    }
    let file = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(path);
    if std::env::var_os("FARCALL_WRITE_GOLDEN").is_some() {
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(&file, text).unwrap();
    }
    let held = std::fs::read_to_string(&file).unwrap_or_default();
    assert_eq!(held, text, "{path} differs: FARCALL_WRITE_GOLDEN=1 writes it anew");
}
