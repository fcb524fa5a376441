//! TLS by a settings file.

use farcall::Settings;

use crate::authority::{Authority, Folder, named};
use crate::service::{Tls, who};

fn error_of(text: &str) -> String {
    Settings::parse("app.toml", text).unwrap_err().to_string()
}

#[tokio::test]
async fn a_server_and_a_target_of_a_file_have_mutual_tls() {
    let (authority, folder) = (Authority::new(), Folder::new("settings"));
    let path = folder.path().display();
    for (name, leaf) in [
        ("server", authority.issue(named("inventory.example"))),
        ("client", authority.issue(named("orders.example"))),
    ] {
        folder.write(&format!("{name}.pem"), &leaf.cert);
        folder.write(&format!("{name}.key"), &leaf.key);
    }
    folder.write("ca.pem", &authority.pem());
    let of_server = format!(
        "[servers.inventory]\n\
         address = \"tcp://127.0.0.1:0\"\n\
         require_encryption = true\n\
         tls = {{ cert = \"{path}/server.pem\", key = \"{path}/server.key\", \
         client_ca = \"{path}/ca.pem\" }}"
    );
    let settings = Settings::parse("server.toml", &of_server).unwrap();
    let (address, server) = settings.server("inventory").unwrap();
    let listener = server.add_service(Tls::default()).bind(address).await.unwrap();
    let address = listener.local_address().to_string();
    tokio::spawn(listener.serve());
    let of_client = format!(
        "[targets.inventory]\n\
         address = \"{address}\"\n\
         require_encryption = true\n\
         [defaults.target.tls]\n\
         ca = \"{path}/ca.pem\"\n\
         server_name = \"inventory.example\"\n\
         cert = \"{path}/client.pem\"\n\
         key = \"{path}/client.key\""
    );
    let settings = Settings::parse("client.toml", &of_client).unwrap();
    let builder = settings.channel_builder("inventory").unwrap();
    assert!(builder.tls_handle().is_some() && builder.settings().require_encryption);
    let channel = settings.channel("inventory").unwrap();
    assert_eq!(who(&channel).await.unwrap(), "orders.example");
    #[cfg(feature = "grpc")]
    {
        let of_client = of_client.replace("\"tcp://", "\"grpcs://");
        let settings = Settings::parse("client.toml", &of_client).unwrap();
        let channel = settings.channel("inventory").unwrap();
        assert_eq!(who(&channel).await.unwrap(), "orders.example");
        assert_eq!(channel.path().transport(), Some("grpc"));
    }
}

/// The file that the page about load balancers shows.
#[tokio::test]
async fn servers_behind_a_load_balancer_start_as_the_page_says() {
    let (authority, folder) = (Authority::new(), Folder::new("balanced"));
    let leaf = authority.issue(named("127.0.0.1"));
    folder.write("orders.pem", &leaf.cert);
    folder.write("orders.key", &leaf.key);
    let mut text = include_str!("../../../docs/book/src/load-balancers/farcall.toml").to_owned();
    for (from, to) in [
        ("\"tls/", format!("\"{}/", folder.path().display())),
        ("0.0.0.0:7000", "127.0.0.1:0".to_owned()),
        ("0.0.0.0:7001", "127.0.0.1:0".to_owned()),
        ("0.0.0.0:7443", "127.0.0.1:0".to_owned()),
    ] {
        assert!(text.contains(from), "{from}");
        text = text.replace(from, &to);
    }
    let settings = Settings::parse("farcall.toml", &text).unwrap();
    for name in ["orders", "orders-encrypted", "orders-grpc"] {
        let (address, server) = settings.server(name).unwrap();
        server.add_service(Tls::default()).bind(address).await.unwrap();
    }
}

#[test]
fn a_missing_or_wrong_file_is_named_with_its_key() {
    let (authority, folder) = (Authority::new(), Folder::new("files"));
    let path = folder.path().display();
    folder.write("ca.pem", &authority.pem());
    let leaf = authority.issue(named("a.example"));
    folder.write("a.pem", &leaf.cert);
    folder.write("a.key", &leaf.key);
    let server = "[servers.s]\naddress = \"tcp://127.0.0.1:0\"\n";
    let error = error_of(&format!("{server}tls.cert = \"/none.pem\"\ntls.key = \"{path}/a.key\""));
    assert!(
        error.starts_with("app.toml:3:12: servers.s.tls.cert: cannot read /none.pem"),
        "{error}"
    );
    let error =
        error_of(&format!("{server}tls.cert = \"{path}/a.pem\"\ntls.key = \"{path}/ca.pem\""));
    let message = format!(
        "app.toml:4:11: servers.s.tls.key: {path}/ca.pem has no private key in PEM, but has a \
         section CERTIFICATE: the key is in another file"
    );
    assert_eq!(error, message);
    let error = error_of(&format!("{server}tls.cert = \"{path}/a.pem\""));
    assert!(error.contains("servers.s.tls.cert: set without `tls.key`"), "{error}");
    let error = error_of(&format!("{server}tls.client_ca = \"{path}/ca.pem\""));
    assert!(error.contains("needs `tls.cert` and `tls.key`"), "{error}");
}

#[test]
fn tls_that_could_not_take_effect_is_an_error_of_the_file() {
    let (authority, folder) = (Authority::new(), Folder::new("vain"));
    let ca = folder.write("ca.pem", &authority.pem());
    let target = |address: &str| format!("[targets.t]\naddress = \"{address}\"\n");
    let tls = format!("tls.ca = \"{}\"", ca.display());
    let error = error_of(&(target("unix:///run/a.sock") + &tls));
    assert!(
        error.starts_with(
            "app.toml:3:10: targets.t.tls.ca: calls there do not leave the \
                               host"
        ),
        "{error}"
    );
    let error = error_of(&(target("tcp://a:1,unix:///run/a.sock") + &tls));
    assert!(error.contains("targets.t.tls.ca: calls there do not leave the host"), "{error}");
    let error = error_of(&(target("tcp://a:1") + "require_encryption = true"));
    assert!(error.contains("targets.t.require_encryption: require_encryption is set"), "{error}");
    let error = error_of(&(target("grpc://a:1") + &tls));
    assert!(error.contains("targets.t.tls.ca: grpc:// has no TLS: write grpcs://"), "{error}");
    let error = error_of(&target("grpcs://a:1"));
    assert!(error.starts_with("app.toml:2:11: targets.t.address: grpcs:// needs TLS"), "{error}");
    let off = target("unix:///run/a.sock") + &tls + "\ntls.enabled = false";
    assert!(Settings::parse("app.toml", &off).is_ok());
}
