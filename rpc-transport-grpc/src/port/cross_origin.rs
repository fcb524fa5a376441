//! CORS for grpc-web: the permission for pages of other origins to call.
//!
//! A browser asks the port for permission before it sends a call, and looks for it in the answer.
//! CORS is no access control. Other clients can send any `Origin`, and only browsers enforce the
//! answer, for their users' sake. A call without permission is therefore answered like one without
//! an origin, and the browser withholds the answer from the page.

use std::time::Duration;

use http::uri::Authority;
use http::{HeaderValue, Method, header};
use rpc_core::InvalidSetting;
use rpc_core::settings::ensure;
use rpc_core::wire::PeerText;
use tower_http::cors::{AllowHeaders, AllowOrigin, Any, CorsLayer};

/// Time for which a browser may cache a preflight answer: Chromium's maximum. The answer to each
/// call must still grant permission.
const REMEMBERED_FOR: Duration = Duration::from_secs(7200);

/// The entry that stands for every origin.
const ANY: &str = "*";

const RULE: &str = "\"*\" alone, or scheme://host[:port] as browsers send it: in lower case, \
                    without a path and without the scheme's own port";

/// The origins whose pages may call by grpc-web. None by default.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WebOrigins(Vec<String>);

impl WebOrigins {
    /// Creates a list of origins: each `scheme://host[:port]`, or `*` alone for all.
    ///
    /// # Errors
    ///
    /// Returns an error if no browser would send one of the origins, or if `*` is not alone.
    pub fn new<T: Into<String>>(
        origins: impl IntoIterator<Item = T>,
    ) -> Result<Self, InvalidSetting> {
        let origins: Vec<String> = origins.into_iter().map(Into::into).collect();
        for origin in &origins {
            let is_right = if origin == ANY { origins.len() == 1 } else { is_origin(origin) };
            ensure(is_right, "grpc_web_origins", origin, RULE)?;
        }
        Ok(Self(origins))
    }

    /// Returns the origins.
    #[must_use]
    pub fn as_slice(&self) -> &[String] {
        &self.0
    }

    fn has(&self, origin: &HeaderValue) -> bool {
        self.0.iter().any(|it| it == ANY || it.as_bytes() == origin.as_bytes())
    }
}

/// Returns true if a browser can send `text` as the origin of a page. Excludes `null`, which all
/// pages without an origin share.
fn is_origin(text: &str) -> bool {
    let Some((scheme, rest)) = text.split_once("://") else { return false };
    let is_scheme_char = |it: char| it.is_ascii_alphanumeric() || "+-.".contains(it);
    let is_lower = text.is_ascii() && !text.bytes().any(|it| it.is_ascii_uppercase());
    let has_scheme = scheme.starts_with(|it: char| it.is_ascii_alphabetic())
        && scheme.chars().all(is_scheme_char);
    // The parser accepts a missing or empty port. The comparisons below demand the spelling that
    // browsers use.
    let Ok(authority) = rest.parse::<Authority>() else { return false };
    let has_port = match (scheme, authority.port_u16()) {
        ("http", Some(80)) | ("https", Some(443)) => false,
        (_, Some(port)) => rest == format!("{}:{port}", authority.host()),
        (_, None) => rest == authority.host(),
    };
    is_lower && has_scheme && has_port && !authority.host().is_empty()
}

/// The origins, and the layer that writes their CORS headers.
#[derive(Debug, Clone)]
pub(super) struct CrossOrigin {
    origins: WebOrigins,
    layer: CorsLayer,
}

impl CrossOrigin {
    pub(super) fn new(origins: &WebOrigins) -> Self {
        let allowed = if origins.0.iter().any(|it| it == ANY) {
            AllowOrigin::any()
        } else {
            AllowOrigin::list(origins.0.iter().filter_map(|it| it.parse().ok()))
        };
        // A call's metadata are headers with arbitrary names, and so are those of its answer. Both
        // pass, `authorization` included. The layer allows no credentials (cookies and certificates
        // of the browser), and without them `*` covers every response header.
        let layer = CorsLayer::new()
            .allow_origin(allowed)
            .allow_methods([Method::POST])
            .allow_headers(AllowHeaders::mirror_request())
            .expose_headers(Any)
            .max_age(REMEMBERED_FOR);
        Self { origins: origins.clone(), layer }
    }

    /// Returns the layer that answers a preflight request or adds the CORS headers to a call's
    /// response.
    ///
    /// Returns `None` if the request is neither, or if its origin has no permission. Logs a refused
    /// preflight.
    pub(super) fn layer_for<B>(
        &self,
        request: &http::Request<B>,
        is_call: bool,
    ) -> Option<&CorsLayer> {
        let origin = request.headers().get(header::ORIGIN)?;
        let is_preflight = request.method() == Method::OPTIONS
            && request.headers().contains_key(header::ACCESS_CONTROL_REQUEST_METHOD);
        if !is_preflight && !is_call {
            return None;
        }
        if self.origins.has(origin) {
            return Some(&self.layer);
        }
        if is_preflight {
            // A page can put any text into the header, so the log line escapes and bounds it.
            let origin = PeerText::new(&String::from_utf8_lossy(origin.as_bytes()));
            tracing::debug!(
                target: "farcall::server",
                %origin,
                "rejected a grpc-web call: grpc_web_origins lacks the page's origin"
            );
        }
        None
    }
}

impl Default for CrossOrigin {
    fn default() -> Self {
        Self::new(&WebOrigins::default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accepts_the_origins_that_browsers_send() {
        let right = [
            "*",
            "https://app.example",
            "http://localhost:8080",
            "http://127.0.0.1:8044",
            "https://[::1]:3000",
            "chrome-extension://abcdef",
            "https://app.example:80",
        ];
        for origin in right {
            WebOrigins::new([origin]).unwrap();
        }
        let wrong = [
            "",
            "null",
            "app.example",
            "https://",
            "https://App.example",
            "https://app.example/",
            "https://app.example/page",
            "https://app.example:443",
            "http://app.example:80",
            "https://app.example:",
            "https://app.example:0443",
            "https://app.example:99999",
            "https://user@app.example",
            "https://*.example?",
            "https://bücher.example",
            "1http://app.example",
            "https://a b",
        ];
        for origin in wrong {
            let error = WebOrigins::new(["https://other.example", origin]).unwrap_err();
            assert_eq!(error.value(), format!("{origin:?}"));
        }
        let error = WebOrigins::new(["https://app.example", "*"]).unwrap_err().to_string();
        assert!(
            error.starts_with("grpc_web_origins is \"*\": \"*\" alone, or scheme://"),
            "{error}"
        );
    }

    #[test]
    fn grants_calls_and_preflights_of_listed_origins() {
        let listed = WebOrigins::new(["https://app.example"]).unwrap();
        let of = |method: Method, origin: &str| {
            let builder = http::Request::builder().method(method).header(header::ORIGIN, origin);
            builder.header(header::ACCESS_CONTROL_REQUEST_METHOD, "POST").body(()).unwrap()
        };
        let has =
            |leave: &CrossOrigin, request, is_call| leave.layer_for(&request, is_call).is_some();
        let leave = CrossOrigin::new(&listed);
        assert!(has(&leave, of(Method::OPTIONS, "https://app.example"), false));
        assert!(has(&leave, of(Method::POST, "https://app.example"), true));
        assert!(!has(&leave, of(Method::GET, "https://app.example"), false));
        for origin in
            ["https://app.example.evil", "http://app.example", "null", "https://app.exampl"]
        {
            assert!(!has(&leave, of(Method::OPTIONS, origin), false), "{origin}");
            assert!(!has(&leave, of(Method::POST, origin), true), "{origin}");
        }
        let all = CrossOrigin::new(&WebOrigins::new(["*"]).unwrap());
        assert!(has(&all, of(Method::OPTIONS, "null"), false));
        assert!(!has(&CrossOrigin::default(), of(Method::OPTIONS, "https://app.example"), false));
        let plain = http::Request::builder().method(Method::OPTIONS);
        let plain = plain.header(header::ORIGIN, "https://app.example").body(()).unwrap();
        assert!(!has(&leave, plain, false), "it asks for nothing");
    }
}
