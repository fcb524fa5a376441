//! RDMA that is agreed on over TLS: who the client is, and what may not leave unencrypted.

use std::error::Error;

use farcall::tls::{ClientTls, ClientTlsConfig, Pem, ServerTls, ServerTlsConfig};
use farcall::{Channel, Rdma, Server, ServerBuilder};
use farcall_suite::Failure;
use farcall_suite::OneServer as _;
use farcall_suite::proto::probe_rpc::ProbeStub;
use farcall_testkit::certificates::{Authority, CertificateError, Leaf, Wanted};

use crate::proxy::Proxy;
use crate::rig::{Rig, Serving, client, devices, echo};

/// Name of the client.
const CLIENT: &str = "client.example";

/// TLS of both sides, each with a certificate of one authority.
struct Sides {
    server: ServerTls,
    client: ClientTls,
}

impl Sides {
    fn new(host: &str) -> Self {
        Self::make(host).expect("certificates of an authority of our own")
    }

    fn make(host: &str) -> Result<Self, Box<dyn Error>> {
        let authority = Authority::new("the test's authority")?;
        let leaf = |name: &str| -> Result<(Pem, Pem), CertificateError> {
            let Leaf { cert, key } = authority.issue(Wanted::named(name))?;
            Ok((Pem::bytes(cert), Pem::bytes(key)))
        };
        let ((cert, key), ca) = (leaf(host)?, Pem::bytes(authority.pem()));
        let server = ServerTlsConfig::new(cert, key).with_client_ca(ca.clone());
        let (cert, key) = leaf(CLIENT)?;
        let client = ClientTlsConfig::default().with_ca(ca).with_cert(cert, key);
        Ok(Self { server: ServerTls::new(server)?, client: ClientTls::new(client)? })
    }

    async fn serve(&self, rig: &Rig, builder: ServerBuilder) -> Result<Serving, Failure> {
        let builder = builder.tls(&self.server).rdma(&devices(Default::default()));
        Serving::start_with(&format!("auto://{}:0", rig.host), builder).await
    }

    async fn connect(&self, authority: &str, rdma: &Rdma) -> Result<Channel, Failure> {
        Ok(client("auto", authority, rdma)?.tls(&self.client).connect().await?)
    }
}

/// The client's identity is that of TLS, and once RDMA is agreed on no byte passes on TCP.
pub(crate) fn upgraded(rig: &Rig) -> Result<(), Failure> {
    rig.run(async {
        let sides = Sides::new(&rig.host);
        let server = sides.serve(rig, Server::builder()).await?;
        let proxy = Proxy::start(&rig.host, &server.authority, None).await?;
        let channel = sides.connect(&proxy.authority, &devices(Default::default())).await?;
        assert_eq!(channel.info().map(|info| info.transport), Some("rdma"), "{}", channel.path());
        let stub = ProbeStub::new(channel);
        echo(&stub, 0, 64).await?;
        let identity = server.connection().addresses.identity().map(ToString::to_string);
        assert_eq!(identity.as_deref(), Some(CLIENT));

        let (before, passed) = (rig.counts(), proxy.passed_bytes());
        for (seed, len) in [(1, 64), (2, 1 << 10), (3, 1 << 20), (4, 8 << 20)] {
            echo(&stub, seed, len).await?;
        }
        let counts = rig.counts() - before;
        println!("calls up to 8 MiB, agreed on over TLS: {counts:?}, and no byte on TCP");
        assert_eq!(proxy.passed_bytes(), passed, "bytes on the bootstrap");
        assert!(counts.receives >= 8, "{counts:?}");
        Ok(())
    })
}

/// A server that requires encryption stays on TLS, and the channel says why.
pub(crate) fn required(rig: &Rig) -> Result<(), Failure> {
    rig.run(async {
        let sides = Sides::new(&rig.host);
        let server = sides.serve(rig, Server::builder().require_encryption(true)).await?;
        let channel = sides.connect(&server.authority, &devices(Default::default())).await?;
        assert_eq!(channel.info().map(|info| info.transport), Some("tls"));
        let path = channel.path().to_string();
        println!("{path}");
        assert!(path.contains("require_encryption"), "{path}");
        let before = rig.counts();
        echo(&ProbeStub::new(channel), 5, 1 << 20).await?;
        let counts = rig.counts() - before;
        assert_eq!((counts.sends, counts.receives), (0, 0), "{counts:?}");
        Ok(())
    })
}
