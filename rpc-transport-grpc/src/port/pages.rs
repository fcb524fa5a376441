//! Pages for operators at the port.
//!
//! Clients that are no operators get the answer of an unknown path. So does a page of another site
//! that a browser on the host shows: it can point its own name at a loopback address (DNS
//! rebinding), but it cannot send another name than its own.

use std::net::IpAddr;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Uri, header};
use http_body_util::Full;

/// Pages for operators.
pub trait Pages: std::fmt::Debug + Send + Sync {
    /// Returns the page at `uri`; `None` if there is none. `headers` are those of the request.
    fn page(&self, uri: &Uri, headers: &HeaderMap) -> Option<http::Response<Bytes>>;
}

/// Returns the page that a request asks for.
pub(super) fn page<B>(
    pages: &dyn Pages,
    request: &http::Request<B>,
) -> Option<http::Response<tonic::body::Body>> {
    let is_head = *request.method() == Method::HEAD;
    if !is_head && *request.method() != Method::GET {
        return None;
    }
    let mut page = pages.page(request.uri(), request.headers())?;
    let len = HeaderValue::from(page.body().len());
    page.headers_mut().insert(header::CONTENT_LENGTH, len);
    Some(page.map(|body| match is_head {
        true => tonic::body::Body::empty(),
        false => tonic::body::Body::new(Full::new(body)),
    }))
}

/// Returns true if a request names this host by an address, or as `localhost`.
pub(super) fn names_own_host<B>(request: &http::Request<B>) -> bool {
    let host = request.headers().get(header::HOST);
    let host = host.map(|host| host.to_str().unwrap_or_default());
    let authority = request.uri().authority().map(http::uri::Authority::as_str);
    // A request without a name comes from no browser.
    [host, authority].into_iter().flatten().all(is_own_host)
}

fn is_own_host(authority: &str) -> bool {
    let host = match authority.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => authority.split(':').next().unwrap_or_default(),
    };
    let name = host.trim_end_matches('.').to_ascii_lowercase();
    host.parse::<IpAddr>().is_ok() || name == "localhost" || name.ends_with(".localhost")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_other_sites_are_not_the_own_host() {
        for own in ["127.0.0.1", "10.0.0.1:80", "[::1]:7000", "localhost", "LOCALHOST.:1"] {
            assert!(is_own_host(own), "{own}");
        }
        for other in ["evil.example:7000", "127.0.0.1.evil.example", "localhost.evil.example", ""] {
            assert!(!is_own_host(other), "{other}");
        }
    }
}
