//! Hostile servers of HTTP/2.

use bytes::Bytes;
use h2::server::SendResponse;
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use tokio::net::TcpStream;

/// The page of a proxy without a server behind it. It would colour a terminal.
const PAGE: &[u8] = b"<html><h1>\x1b[31m503 Service Unavailable</h1></html>";

/// A server's treatment of its clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Manner {
    /// A proxy answers every call with a page.
    HtmlProxy,
    /// It answers one call, and sends the client away.
    AnswerAndClose,
}

/// Serves one connection.
pub(super) async fn serve(stream: TcpStream, manner: Manner) {
    let Ok(mut connection) = h2::server::handshake(stream).await else { return };
    let mut response = Response::new(());
    let content_type = match manner {
        Manner::HtmlProxy => {
            *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
            "text/html"
        }
        Manner::AnswerAndClose => "application/grpc",
    };
    response.headers_mut().insert("content-type", HeaderValue::from_static(content_type));
    while let Some(Ok((_request, mut respond))) = connection.accept().await {
        // The client may have closed.
        let _ = answer(&mut respond, response.clone(), manner);
        if manner == Manner::AnswerAndClose {
            connection.graceful_shutdown();
        }
    }
}

fn answer(
    respond: &mut SendResponse<Bytes>,
    response: Response<()>,
    manner: Manner,
) -> Result<(), h2::Error> {
    let mut body = respond.send_response(response, false)?;
    match manner {
        Manner::HtmlProxy => body.send_data(Bytes::from_static(PAGE), true),
        Manner::AnswerAndClose => {
            body.send_data(Bytes::from_static(&[0; 5]), false)?;
            let mut trailers = HeaderMap::new();
            trailers.insert("grpc-status", HeaderValue::from_static("0"));
            body.send_trailers(trailers)
        }
    }
}
