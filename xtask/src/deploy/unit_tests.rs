//! Sections and keys of the units are systemd's.

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy/systemd");

/// Keys of systemd.unit(5), systemd.service(5), systemd.exec(5), systemd.kill(5) and
/// systemd.resource-control(5) that the units use.
const KEYS: [(&str, &[&str]); 3] = [
    ("[Unit]", &["Description", "Documentation", "Wants", "After"]),
    (
        "[Service]",
        &[
            "Type",
            "ExecStart",
            "ExecReload",
            "User",
            "Group",
            "LimitMEMLOCK",
            "LimitNOFILE",
            "KillSignal",
            "TimeoutStopSec",
            "Restart",
            "RestartSec",
            "NoNewPrivileges",
            "ProtectSystem",
            "ProtectHome",
            "PrivateTmp",
            "ProtectKernelTunables",
            "ProtectControlGroups",
            "RestrictSUIDSGID",
            "DevicePolicy",
            "DeviceAllow",
            "RestrictAddressFamilies",
        ],
    ),
    ("[Install]", &["WantedBy"]),
];

#[test]
fn units_have_keys_of_systemd_alone() {
    for name in ["orders.service", "containerd-memlock.conf"] {
        let text = std::fs::read_to_string(format!("{ROOT}/{name}")).unwrap();
        let mut keys: &[&str] = &[];
        for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
            if line.starts_with('[') {
                let section = KEYS.iter().find(|(section, _)| *section == line);
                keys = section.unwrap_or_else(|| panic!("{name}: {line}")).1;
                continue;
            }
            let (key, value) = line.split_once('=').unwrap_or_else(|| panic!("{name}: {line}"));
            assert!(keys.contains(&key) && !value.is_empty(), "{name}: {line}");
        }
        assert!(text.contains("\nLimitMEMLOCK=infinity\n"), "{name}");
    }
}
