//! gRPC servers that are registered in etcd.

use std::collections::BTreeSet;
use std::path::PathBuf;

use farcall::balance::{BalanceConfig, Policy};
use farcall::client::unary;
use farcall::{Channel, Settings};

use super::*;

static WHO: ServiceDescriptor =
    ServiceDescriptor { name: "t.Who", methods: &[method("/t.Who/Ask", CallKind::Unary)] };

/// A service that answers with its number.
struct Who(u64);

impl Service for Who {
    fn descriptor(&self) -> &'static ServiceDescriptor {
        &WHO
    }

    fn call(&self, _: usize, call: ServerCall) -> HandlerFuture {
        let number = self.0;
        call.unary(async move |_: Request<()>| Ok(Response::new(number)))
    }
}

/// Serves at a loopback port. Returns the host and port.
async fn serve(service: impl Service) -> String {
    let builder = Server::builder().add_service(service);
    let listener = builder.bind("tcp://127.0.0.1:0").await.expect("a port of loopback");
    let address = listener.local_address().to_string().replace("tcp://", "");
    tokio::spawn(listener.serve());
    address
}

/// A settings file for one test, deleted on drop.
struct File(PathBuf);

impl File {
    fn new(name: &str, address: &str) -> Self {
        let name = format!("farcall-etcd-{name}-{}.toml", std::process::id());
        let file = Self(std::env::temp_dir().join(name));
        file.replace(address);
        file
    }

    fn replace(&self, address: &str) {
        let text = format!("[targets.shop]\naddress = \"{address}\"\n");
        std::fs::write(&self.0, text).expect("a file");
    }
}

impl Drop for File {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Calls until the server with this number has answered ten calls in a row.
async fn reach(channel: &Channel, number: u64) {
    let calling = async {
        let mut in_a_row = 0;
        while in_a_row < 10 {
            let calling = unary::<(), u64>(channel, &WHO.methods[0], Request::new(()));
            let is_answered = calling.await.is_ok_and(|response| response.into_inner() == number);
            in_a_row = if is_answered { in_a_row + 1 } else { 0 };
            tokio::task::yield_now().await;
        }
    };
    timeout(Duration::from_secs(60), calling).await.expect("the server is called");
}

/// etcd's calls use `grpc://`, as with a real etcd.
#[tokio::test]
async fn a_target_of_a_file_goes_to_etcd_and_back() {
    let fake = Fake::default();
    let (etcd, one, two) = (serve(fake).await, serve(Who(1)).await, serve(Who(2)).await);
    let builder = Channel::builder(format!("grpc://{etcd}")).expect("an address");
    let ttl = Duration::from_secs(10);
    let entry = EtcdRegistration::new(builder.connect_lazy(), "/shop/", two, ttl);
    let entry = timeout(Duration::from_secs(60), entry).await.expect("in time").expect("it is");
    let tcp = format!("tcp://{one}");
    let file = File::new("target", &tcp);
    let settings = Settings::load(&file.0).expect("a settings file").with_scheme(crate::scheme());
    let reloader = settings.watch().expect("it is a file");
    let channel = settings.channel("shop").expect("it is in the file");
    reach(&channel, 1).await;
    file.replace(&format!("etcd+tcp://{etcd}/shop"));
    assert_eq!(reloader.reload().expect("it is right").changes.len(), 1);
    reach(&channel, 2).await;
    file.replace(&format!("etcd+tcp://{etcd}"));
    let error = reloader.reload().expect_err("it has no prefix").to_string();
    assert!(error.contains(":2:11: targets.shop.address: etcd:// needs a key prefix"), "{error}");
    file.replace(&tcp);
    assert_eq!(reloader.reload().expect("it is right").changes.len(), 1);
    reach(&channel, 1).await;
    entry.withdraw().await.expect("etcd answers");
}

/// An entry names its server with gRPC's scheme, or gets the scheme from the target.
#[tokio::test]
async fn grpc_servers_under_a_prefix_share_calls() {
    let (fake, etcd) = etcd();
    for (number, scheme) in [(1, ""), (2, "grpc://")] {
        let address = format!("{scheme}{}", serve(Who(number)).await);
        fake.put(&format!("/shop/{number}"), &address, 0);
    }
    let policy = BalanceConfig::default().with_policy(Policy::RoundRobin);
    let channel = Channel::builder("grpc://unused:1").expect("an address").balance(policy);
    let resolver = Etcd::new(etcd.channel(), "/shop", Scheme::Grpc);
    let channel = channel.connect_with_resolver(resolver);
    let ask = async || {
        let calling = unary::<(), u64>(&channel, &WHO.methods[0], Request::new(()));
        calling.await.expect("a server answers").into_inner()
    };
    let changing = async {
        let mut found = BTreeSet::new();
        while found.len() < 2 {
            found.insert(ask().await);
        }
        let info = channel.endpoints().into_iter().find_map(|it| it.info);
        assert_eq!(info.map(|info| info.transport), Some("grpc"));
        fake.delete("/shop/1");
        let mut in_a_row = 0;
        while in_a_row < 20 {
            in_a_row = if ask().await == 2 { in_a_row + 1 } else { 0 };
        }
    };
    timeout(Duration::from_secs(60), changing).await.expect("both are called, and then one");
}
