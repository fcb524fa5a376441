//! Leave for pages of other origins to call by grpc-web (CORS), which a browser asks the port for
//! before it sends a call, and looks for in the answer.
//!
//! Leave is no access control: other clients send any `Origin`, and browsers enforce it for their
//! users. So a call is answered as without an origin where there is no leave, and the browser keeps
//! the answer from the page.

use std::time::Duration;

use http::uri::Authority;
use http::{HeaderValue, Method, header};
use rpc_core::InvalidSetting;
use rpc_core::settings::ensure;
use rpc_core::wire::PeerText;
use tower_http::cors::{AllowHeaders, AllowOrigin, Any, CorsLayer};

/// How long a browser may remember what it was told: the most that Chromium does. Its answer to a
/// call has to give leave all the same.
const REMEMBERED_FOR: Duration = Duration::from_secs(7200);

/// Every origin.
const ANY: &str = "*";

const RULE: &str = "\"*\" alone, or scheme://host[:port] as browsers send it: in lower case, \
                    without a path and without the scheme's own port";

/// The origins whose pages have leave to call by grpc-web; none by default.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WebOrigins(Vec<String>);

impl WebOrigins {
    /// These origins: each `scheme://host[:port]`, or `*` alone for all.
    ///
    /// # Errors
    ///
    /// When a browser would send no such origin, or `*` stands beside others.
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

    /// The origins.
    #[must_use]
    pub fn as_slice(&self) -> &[String] {
        &self.0
    }

    fn has(&self, origin: &HeaderValue) -> bool {
        self.0.iter().any(|it| it == ANY || it.as_bytes() == origin.as_bytes())
    }
}

/// Whether a browser may send this as the origin of a page. `null`, which is that of all pages
/// without one, is not meant.
fn is_origin(text: &str) -> bool {
    let Some((scheme, rest)) = text.split_once("://") else { return false };
    let is_of_scheme = |it: char| it.is_ascii_alphanumeric() || "+-.".contains(it);
    let is_lower = text.is_ascii() && !text.bytes().any(|it| it.is_ascii_uppercase());
    let has_scheme =
        scheme.starts_with(|it: char| it.is_ascii_alphabetic()) && scheme.chars().all(is_of_scheme);
    let Ok(authority) = rest.parse::<Authority>() else { return false };
    let has_port = match (scheme, authority.port_u16()) {
        ("http", Some(80)) | ("https", Some(443)) => false,
        (_, Some(port)) => rest == format!("{}:{port}", authority.host()),
        (_, None) => rest == authority.host(),
    };
    is_lower && has_scheme && has_port && !authority.host().is_empty()
}

/// Who has leave, and the headers that say so.
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
        // A call's metadata are headers of any name, and so are those of its answer: both are let
        // through, `authorization` included. Without credentials, which are cookies and
        // certificates of the browser's own, `*` stands for every name of an answer.
        let layer = CorsLayer::new()
            .allow_origin(allowed)
            .allow_methods([Method::POST])
            .allow_headers(AllowHeaders::mirror_request())
            .expose_headers(Any)
            .max_age(REMEMBERED_FOR);
        Self { origins: origins.clone(), layer }
    }

    /// What adds leave to the answer to a request, or answers one that asks for it, if its origin
    /// has leave. A question of one that has none is in the log.
    pub(super) fn layer_for<B>(
        &self,
        request: &http::Request<B>,
        is_call: bool,
    ) -> Option<&CorsLayer> {
        let origin = request.headers().get(header::ORIGIN)?;
        let is_question = request.method() == Method::OPTIONS
            && request.headers().contains_key(header::ACCESS_CONTROL_REQUEST_METHOD);
        if !is_question && !is_call {
            return None;
        }
        if self.origins.has(origin) {
            return Some(&self.layer);
        }
        if is_question {
            let origin = PeerText::new(&String::from_utf8_lossy(origin.as_bytes()));
            tracing::debug!(
                target: "farcall::server",
                %origin,
                "a page may not call by grpc-web: grpc_web_origins does not have its origin"
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
    fn origins_are_what_browsers_send() {
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
    fn leave_is_for_calls_and_questions_of_listed_origins() {
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
