//! `farcall ping`: the path, its reason, and round trips by what the server has.

use crate::program::farcall;
use crate::servers;

#[tokio::test]
async fn health_service_is_pinged() {
    let server = servers::over_tcp().await;
    let shown = farcall(&format!("ping {} -c 3", server.address)).await.succeeded();
    for part in [
        " over tcp  127.0.0.1:",
        "  why this path  the address asks for tcp\n",
        "  health         SERVING\n",
        "  3   pings      min ",
    ] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
}

#[tokio::test]
async fn path_without_rdma_has_its_reason() {
    let server = servers::serve(servers::complete(), "auto://127.0.0.1:0").await;
    let shown = farcall(&format!("ping {} --format json", server.address)).await.succeeded();
    let report: serde_json::Value = serde_json::from_str(&shown).unwrap();
    if report["transport"] != "rdma" {
        assert_eq!(report["transport"], "tcp", "{report}");
        assert!(report["reason"].as_str().unwrap().starts_with("rdma: "), "{report}");
    }
    assert_eq!((&report["health"], &report["count"]), (&"SERVING".into(), &8.into()));
    assert_eq!(report["servers"][0]["state"], "ready", "{report}");
}

#[tokio::test]
async fn server_without_health_is_pinged_all_the_same() {
    let server = servers::serve(servers::bare(), "tcp://127.0.0.1:0").await;
    let shown = farcall(&format!("ping {} -c 2", server.address)).await.succeeded();
    assert!(shown.contains("  2   connects   min "), "{shown}");
    let server = servers::tonic().await;
    let shown = farcall(&format!("ping {} -c 2", server.address)).await.succeeded();
    assert!(shown.contains("  2   pings      min "), "{shown}");
    assert!(!shown.contains("health"), "{shown}");
}

#[tokio::test]
async fn each_server_of_a_list_is_shown() {
    let servers = [servers::over_tcp().await, servers::over_tcp().await];
    let line = format!("ping {},{}", servers[0].address, servers[1].address);
    let shown = farcall(&line).await.succeeded();
    for server in &servers {
        assert!(shown.contains(server.authority()), "{shown}");
    }
}
