//! The pages `/debug/farcall` and `/metrics`.
//!
//! The first is HTML for browsers, which refreshes itself and has no script, and text for others.
//! Both are made from the same [`tables`].

mod html;
mod plot;
mod tables;
mod text;

use std::sync::Arc;

use http::header::{ACCEPT, CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, REFERRER_POLICY};
use http::header::{HeaderMap, HeaderName, HeaderValue, X_CONTENT_TYPE_OPTIONS};
use http::{Response, StatusCode, Uri};
use prost::bytes::Bytes;
use rpc_transport_grpc::Pages;

use super::AdminState;

/// Connections that the page shows.
const CONNECTIONS_SHOWN: u32 = 200;

/// The page has styles of its own, and nothing else.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; \
                      form-action 'none'; frame-ancestors 'none'";

const HTML: &str = "text/html; charset=utf-8";
const TEXT: &str = "text/plain; charset=utf-8";
const PROMETHEUS: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Returns the pages of a server.
pub(crate) fn pages(admin: Option<&Arc<AdminState>>) -> Option<Arc<dyn Pages>> {
    admin.map(|admin| Arc::new(AdminPages(Arc::clone(admin))) as Arc<dyn Pages>)
}

#[derive(Debug)]
struct AdminPages(Arc<AdminState>);

impl Pages for AdminPages {
    fn page(&self, uri: &Uri, headers: &HeaderMap) -> Option<Response<Bytes>> {
        let (kind, page) = match uri.path() {
            "/debug/farcall" => {
                let snapshot = self.0.snapshot(CONNECTIONS_SHOWN);
                let is_still = uri.query().is_some_and(|query| query.contains("refresh=off"));
                match prefers_html(headers) {
                    true => (HTML, html::page(&snapshot, is_still)),
                    false => (TEXT, text::page(&snapshot)),
                }
            }
            "/metrics" => (PROMETHEUS, self.0.admin.metrics.as_ref()?()),
            _ => return None,
        };
        Some(response(kind, page))
    }
}

/// Returns true for a browser, which names HTML.
fn prefers_html(headers: &HeaderMap) -> bool {
    let accepted = headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
    accepted.flat_map(|value| value.split(',')).any(|kind| kind.trim().starts_with("text/html"))
}

fn response(kind: &'static str, page: String) -> Response<Bytes> {
    const RESOURCE_POLICY: HeaderName = HeaderName::from_static("cross-origin-resource-policy");
    let mut response = Response::new(page.into());
    *response.status_mut() = StatusCode::OK;
    let headers = [
        (CONTENT_TYPE, kind),
        (CACHE_CONTROL, "no-store"),
        (CONTENT_SECURITY_POLICY, POLICY),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (REFERRER_POLICY, "no-referrer"),
        (RESOURCE_POLICY, "same-origin"),
    ];
    let headers = headers.map(|(name, value)| (name, HeaderValue::from_static(value)));
    response.headers_mut().extend(headers);
    response
}

#[cfg(test)]
mod tests;
