//! Serves etcd's key-value service from memory, over whatever its address says.
#![forbid(unsafe_code)]

use clap::Parser;
use farcall_examples::proto::etcdserverpb::kv_rpc::KvService;
use farcall_examples::{Kv, MESSAGE_LEN_MAX};

/// Serves etcd's key-value service from memory until it is interrupted.
#[derive(Debug, Parser)]
struct Arguments {
    /// Address to listen on, for example `auto://0.0.0.0:7000`.
    address: String,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    farcall_examples::log_to_stderr();
    let Arguments { address } = Arguments::parse();
    let builder = farcall::Server::builder().max_message_len(MESSAGE_LEN_MAX);
    let listener = builder.add_service(KvService::new(Kv::default())).bind(&address).await?;
    println!("serving {}", listener.local_address());
    let interrupted = async {
        // Without a way to be interrupted in order, it serves until it is killed.
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
    };
    Ok(listener.serve().with_graceful_shutdown(interrupted).await?)
}
