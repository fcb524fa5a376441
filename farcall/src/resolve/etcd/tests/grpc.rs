//! Servers of gRPC that are registered in etcd.

use std::collections::BTreeSet;

use super::*;
use crate::Channel;
use crate::balance::{BalanceConfig, Policy};
use crate::client::unary;

static WHO: ServiceDescriptor =
    ServiceDescriptor { name: "t.Who", methods: &[method("/t.Who/Ask", CallKind::Unary)] };

/// Answers with its number.
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

/// An entry names its server with the scheme of gRPC, or has it from the target.
#[tokio::test]
async fn servers_of_grpc_under_a_prefix_share_calls() {
    let (fake, etcd) = etcd();
    for (number, scheme) in [(1, ""), (2, "grpc://")] {
        let builder = Server::builder().add_service(Who(number));
        let listener = builder.bind("tcp://127.0.0.1:0").await.expect("a port of loopback");
        let address = listener.local_address().to_string().replace("tcp://", scheme);
        tokio::spawn(listener.serve());
        fake.put(&format!("/shop/{number}"), &address, 0);
    }
    let policy = BalanceConfig::new().with_policy(Policy::RoundRobin);
    let channel = Channel::builder("grpc://unused:1").expect("an address").balance(policy);
    let resolver = Etcd::new(etcd.channel(), "/shop", Scheme::Grpc);
    let channel = channel.connect_with_resolver(resolver);
    let ask = async || {
        let asked = unary::<(), u64>(&channel, &WHO.methods[0], Request::new(()));
        asked.await.expect("a server answers").into_inner()
    };
    let changing = async {
        let mut found = BTreeSet::new();
        while found.len() < 2 {
            found.insert(ask().await);
        }
        assert_eq!(
            channel.endpoints().into_iter().find_map(|it| it.info).map(|info| info.transport),
            Some("grpc")
        );
        fake.delete("/shop/1");
        let mut in_a_row = 0;
        while in_a_row < 20 {
            in_a_row = if ask().await == 2 { in_a_row + 1 } else { 0 };
        }
    };
    timeout(Duration::from_secs(60), changing).await.expect("both are called, and then one");
}
