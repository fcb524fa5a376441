//! Puts, reads and deletes keys of a server of etcd's key-value service.
#![forbid(unsafe_code)]

use std::time::Duration;

use bytes::Bytes;
use clap::{Parser, Subcommand};
use farcall_examples::proto::etcdserverpb::kv_rpc::KvStub;
use farcall_examples::proto::etcdserverpb::{DeleteRangeRequest, PutRequest, RangeRequest};
use farcall_examples::{MESSAGE_LEN_MAX, prefix_end};

/// Calls a server of etcd's key-value service.
#[derive(Debug, Parser)]
struct Arguments {
    /// The server's address, for example `auto://10.0.0.1:7000`.
    address: String,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Sets a key.
    Put { key: String, value: String },
    /// Prints a key and its value, or all that begin with it.
    Get {
        key: String,
        #[arg(long)]
        prefix: bool,
    },
    /// Deletes a key, or all that begin with it.
    Del {
        key: String,
        #[arg(long)]
        prefix: bool,
    },
}

fn range(key: String, prefix: bool) -> (Bytes, Bytes) {
    let range_end = if prefix { prefix_end(key.as_bytes()) } else { Bytes::new() };
    // All keys begin with nothing, but no key is nothing: the first that there can be is a zero.
    let key = if prefix && key.is_empty() { "\0".into() } else { key };
    (key.into(), range_end)
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    farcall_examples::log_to_stderr();
    let Arguments { address, command } = Arguments::parse();
    let channel =
        farcall::Channel::builder(&address)?.max_message_len(MESSAGE_LEN_MAX).connect().await?;
    let stub = KvStub::new(channel).with_timeout(Duration::from_secs(30));
    match command {
        Command::Put { key, value } => {
            let request = PutRequest { key: key.into(), value: value.into(), ..Default::default() };
            let header = stub.put(request).await?.into_inner().header.unwrap_or_default();
            println!("OK, revision {}", header.revision);
        }
        Command::Get { key, prefix } => {
            let (key, range_end) = range(key, prefix);
            let request = RangeRequest { key, range_end, ..Default::default() };
            for kv in stub.range(request).await?.into_inner().kvs {
                println!("{}\n{}", kv.key.escape_ascii(), kv.value.escape_ascii());
            }
        }
        Command::Del { key, prefix } => {
            let (key, range_end) = range(key, prefix);
            let request = DeleteRangeRequest { key, range_end, prev_kv: false };
            println!("{}", stub.delete_range(request).await?.into_inner().deleted);
        }
    }
    Ok(())
}
