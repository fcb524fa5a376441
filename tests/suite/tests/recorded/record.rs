//! Recording a conversation of today's client with today's server.

use std::fs;
use std::io::Write as _;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::conversation::Conversation;
use crate::meaning::read_unit;
use crate::tape::{self, Side, Unit};
use crate::{bounded, file, todays_folder};

type Log = Arc<Mutex<Vec<Unit>>>;

/// Holds a conversation through a proxy that writes it down.
pub(crate) async fn record(conversation: Conversation) {
    let log = Log::default();
    let server = conversation.serve().await;
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("loopback has a port");
    let port = listener.local_addr().expect("it listens").port();
    let proxy = tokio::spawn(proxy(listener, server, log.clone()));
    bounded(conversation, conversation.hold(port)).await;
    bounded(conversation, proxy).await.expect("the proxy does not panic");
    let units = log.lock();
    let path = file(&todays_folder(), conversation);
    let mut text = fs::File::create(&path).expect("the folder takes it");
    write!(text, "# {conversation:?}\n\n{}", tape::write(&units)).expect("the file takes it");
    println!("{}", path.display());
}

async fn proxy(listener: TcpListener, server: u16, log: Log) {
    let (client, _) = listener.accept().await.expect("the client comes");
    drop(listener);
    let server = TcpStream::connect(("127.0.0.1", server)).await.expect("the server listens");
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    tokio::join!(
        forward(Side::Client, from_client, to_server, &log),
        forward(Side::Server, from_server, to_client, &log),
    );
}

/// Forwards until a side closes. What is forwarded is written down first, so that an answer stands
/// behind what it answers.
async fn forward(
    from: Side,
    mut source: impl AsyncRead + Unpin,
    mut sink: impl AsyncWrite + Unpin,
    log: &Log,
) {
    while let Some(bytes) = read_unit(&mut source).await {
        log.lock().push(Unit { from, bytes: bytes.clone() });
        if sink.write_all(&bytes).await.is_err() {
            return;
        }
    }
    // The other side may have closed already.
    let _ = sink.shutdown().await;
}
