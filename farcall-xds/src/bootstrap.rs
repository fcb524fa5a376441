//! gRPC's xDS bootstrap file: the control plane, and the node that asks it.

use std::path::Path;
use std::{env, fs};

use farcall::resolve::ResolveError;
use serde_json::{Map, Value};

use super::api::Locality;
use super::node::XdsNode;

/// The variable that names the file.
const FILE_VARIABLE: &str = "GRPC_XDS_BOOTSTRAP";

/// The variable with the file's text, if there is no file.
const TEXT_VARIABLE: &str = "GRPC_XDS_BOOTSTRAP_CONFIG";

/// The placeholder for the target's name in a listener name template.
const PLACEHOLDER: &str = "%s";

/// gRPC's bootstrap configuration, which tells a client its control plane. A pod that is prepared
/// for gRPC is also prepared for farcall.
///
/// farcall reads these keys and ignores all others:
/// * `xds_servers`: the first entry, with `server_uri` and the first of its `channel_creds` that is
///   `insecure` or `tls`;
/// * `node`;
/// * `client_default_listener_resource_name_template`.
#[derive(Debug, Clone, PartialEq)]
pub struct XdsBootstrap {
    control_plane: XdsControlPlane,
    node: XdsNode,
    template: Option<String>,
}

/// The location of a control plane.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum XdsControlPlane {
    /// At a host and port.
    #[non_exhaustive]
    Tcp {
        /// The host and port.
        authority: String,
        /// The credentials of the connection.
        credentials: XdsCredentials,
    },
    /// At a Unix socket, without TLS: an agent on the same host, as in Istio.
    #[non_exhaustive]
    Unix {
        /// The socket's path.
        path: String,
    },
}

/// The credentials for a control plane.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum XdsCredentials {
    /// No TLS.
    Insecure,
    /// TLS.
    #[non_exhaustive]
    Tls {
        /// The file with the authorities that verify the control plane. Defaults to the operating
        /// system's.
        ca: Option<String>,
        /// The files with the client's certificate and its key.
        cert: Option<(String, String)>,
    },
}

impl XdsBootstrap {
    /// Reads the file that `GRPC_XDS_BOOTSTRAP` names, or without that variable the text in
    /// `GRPC_XDS_BOOTSTRAP_CONFIG`.
    ///
    /// # Errors
    ///
    /// Returns an error if there is neither or if the file cannot be read, and the errors of
    /// [`XdsBootstrap::from_json`].
    pub fn from_env() -> Result<Self, ResolveError> {
        let (file, text) = (env::var_os(FILE_VARIABLE), env::var(TEXT_VARIABLE).ok());
        Self::from_either(file.as_deref().map(Path::new), text.as_deref())
    }

    fn from_either(file: Option<&Path>, text: Option<&str>) -> Result<Self, ResolveError> {
        match (file, text) {
            (Some(path), _) => {
                let name = path.display().to_string();
                let text = fs::read_to_string(path).map_err(|error| {
                    let message = "cannot read the xDS bootstrap file";
                    ResolveError::new(format!("{name} ({FILE_VARIABLE}): {message}: {error}"))
                })?;
                Self::from_json(&name, &text)
            }
            (None, Some(text)) => Self::from_json(TEXT_VARIABLE, text),
            (None, None) => Err(ResolveError::new(format!(
                "no control plane is configured: set {FILE_VARIABLE} to a bootstrap file or \
                 {TEXT_VARIABLE} to its text, or write xds://host:port/name"
            ))),
        }
    }

    /// Reads the text of a bootstrap file. Errors call the file `file`.
    ///
    /// # Errors
    ///
    /// Returns an error if the text is not JSON, a value has another type than gRPC's, or no usable
    /// control plane is named. The error names the line, or the key.
    ///
    /// # Examples
    ///
    /// ```
    /// use farcall_xds::XdsBootstrap;
    ///
    /// let bootstrap = XdsBootstrap::from_json(
    ///     "bootstrap.json",
    ///     r#"{
    ///         "xds_servers": [{
    ///             "server_uri": "10.0.0.9:18000",
    ///             "channel_creds": [{ "type": "insecure" }]
    ///         }],
    ///         "node": { "id": "shop-7d4b9" }
    ///     }"#,
    /// );
    /// assert!(bootstrap.is_ok());
    /// ```
    pub fn from_json(file: &str, text: &str) -> Result<Self, ResolveError> {
        read(text).map_err(|problem| ResolveError::new(format!("{file}: {problem}")))
    }

    /// Returns the control plane.
    #[must_use]
    pub fn control_plane(&self) -> &XdsControlPlane {
        &self.control_plane
    }

    /// Returns the node that asks it.
    #[must_use]
    pub fn node(&self) -> &XdsNode {
        &self.node
    }

    /// Returns the listener's name for the target `name`.
    #[must_use]
    pub fn listener_of(&self, name: &str) -> String {
        match &self.template {
            Some(template) => template.replace(PLACEHOLDER, name),
            None => name.to_owned(),
        }
    }
}

/// A value, and its place in the text for errors.
#[derive(Clone)]
struct At<'a> {
    place: String,
    value: &'a Value,
}

impl<'a> At<'a> {
    fn wrong(&self, wanted: &str) -> String {
        format!("{} is not {wanted}", self.place)
    }

    fn object(&self) -> Result<&'a Map<String, Value>, String> {
        self.value.as_object().ok_or_else(|| self.wrong("an object"))
    }

    fn text(&self) -> Result<&'a str, String> {
        self.value.as_str().ok_or_else(|| self.wrong("a string"))
    }

    /// Returns the value at `key`. A null counts as absent.
    fn get(&self, key: &str) -> Result<Option<At<'a>>, String> {
        let value = self.object()?.get(key).filter(|value| !value.is_null());
        let prefix = if self.place == ROOT { String::new() } else { format!("{}.", self.place) };
        Ok(value.map(|value| At { place: format!("{prefix}{key}"), value }))
    }

    fn get_text(&self, key: &str) -> Result<Option<&'a str>, String> {
        self.get(key)?.map(|at| at.text()).transpose()
    }

    /// Returns the entries of the list at `key`; empty if there is no list.
    fn list(&self, key: &str) -> Result<Vec<At<'a>>, String> {
        let Some(at) = self.get(key)? else { return Ok(Vec::new()) };
        let values = at.value.as_array().ok_or_else(|| at.wrong("a list"))?;
        let numbered = values.iter().enumerate();
        Ok(numbered
            .map(|(index, value)| At { place: format!("{}[{index}]", at.place), value })
            .collect())
    }
}

/// The place of the whole text.
const ROOT: &str = "it";

fn read(text: &str) -> Result<XdsBootstrap, String> {
    // The error has the line and the column.
    let value: Value = serde_json::from_str(text).map_err(|error| format!("not JSON: {error}"))?;
    let root = At { place: ROOT.to_owned(), value: &value };
    let servers = root.list("xds_servers")?;
    let server = servers.first().ok_or("xds_servers names no control plane")?;
    let control_plane = read_server(server)?;
    let node = match root.get("node")? {
        Some(node) => read_node(&node)?,
        None => XdsNode::new(""),
    };
    let template = root.get("client_default_listener_resource_name_template")?;
    if let Some(at) = template.as_ref().filter(|at| at.text().is_ok_and(is_xdstp_name)) {
        return Err(format!("{}: xdstp: names are not supported", at.place));
    }
    let template = template.map(|at| at.text().map(str::to_owned)).transpose()?;
    Ok(XdsBootstrap { control_plane, node, template })
}

fn is_xdstp_name(name: &str) -> bool {
    name.starts_with("xdstp:")
}

fn read_server(server: &At<'_>) -> Result<XdsControlPlane, String> {
    let uri = server
        .get("server_uri")?
        .ok_or_else(|| format!("{}.server_uri is missing", server.place))?;
    let credentials = read_credentials(server)?;
    let text = uri.text()?;
    let socket = text.strip_prefix("unix://").or_else(|| text.strip_prefix("unix:"));
    if let Some(path) = socket.filter(|path| !path.is_empty()) {
        return match credentials {
            XdsCredentials::Insecure => Ok(XdsControlPlane::Unix { path: path.to_owned() }),
            XdsCredentials::Tls { .. } => Err(format!(
                "{} is a Unix socket, but {}.channel_creds are tls",
                uri.place, server.place
            )),
        };
    }
    let authority = text.strip_prefix("dns:///").unwrap_or(text);
    match format!("grpc://{authority}").parse::<farcall::Address>() {
        Ok(farcall::Address::Grpc(authority)) => {
            Ok(XdsControlPlane::Tcp { authority, credentials })
        }
        _ => Err(format!(
            "{}: `{text}` is not host:port, dns:///host:port or unix:///path",
            uri.place
        )),
    }
}

/// Returns the first supported credentials, as gRPC does.
fn read_credentials(server: &At<'_>) -> Result<XdsCredentials, String> {
    let offered = server.list("channel_creds")?;
    for creds in &offered {
        match creds.get_text("type")? {
            Some("insecure") => return Ok(XdsCredentials::Insecure),
            Some("tls") => return read_tls(creds),
            _ => {}
        }
    }
    let types = offered.iter().filter_map(|creds| creds.get_text("type").ok().flatten());
    let types = types.collect::<Vec<_>>().join(", ");
    Err(format!("{}.channel_creds has neither insecure nor tls: [{types}]", server.place))
}

fn read_tls(creds: &At<'_>) -> Result<XdsCredentials, String> {
    let Some(config) = creds.get("config")? else {
        return Ok(XdsCredentials::Tls { ca: None, cert: None });
    };
    let ca = config.get_text("ca_certificate_file")?.map(str::to_owned);
    let files = (config.get_text("certificate_file")?, config.get_text("private_key_file")?);
    let cert = match files {
        (Some(cert), Some(key)) => Some((cert.to_owned(), key.to_owned())),
        (None, None) => None,
        _ => {
            return Err(format!(
                "{} needs certificate_file and private_key_file, or neither",
                config.place
            ));
        }
    };
    Ok(XdsCredentials::Tls { ca, cert })
}

fn read_node(node: &At<'_>) -> Result<XdsNode, String> {
    let mut read = XdsNode::new(node.get_text("id")?.unwrap_or_default());
    if let Some(cluster) = node.get_text("cluster")? {
        read = read.with_cluster(cluster);
    }
    if let Some(locality) = node.get("locality")? {
        let text = |key| locality.get_text(key).map(|text| text.unwrap_or_default().to_owned());
        let (region, zone, sub_zone) = (text("region")?, text("zone")?, text("sub_zone")?);
        read = read.with_locality(Locality { region, zone, sub_zone });
    }
    match node.get("metadata")? {
        Some(metadata) => Ok(read.with_metadata(metadata.object()?.clone())),
        None => Ok(read),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The file that Istio's agent writes.
    const ISTIO: &str = r#"{
        "xds_servers": [{
            "server_uri": "unix:///etc/istio/proxy/XDS",
            "channel_creds": [{ "type": "insecure" }],
            "server_features": ["xds_v3"]
        }],
        "node": {
            "id": "sidecar~10.0.0.7~shop-7d4b9.shop~shop.svc.cluster.local",
            "metadata": { "GENERATOR": "grpc", "LABELS": { "app": "shop" } },
            "locality": { "region": "a", "zone": "b" }
        },
        "certificate_providers": {},
        "server_listener_resource_name_template": "xds.istio.io/grpc/lds/inbound/%s"
    }"#;

    #[test]
    fn a_pod_prepared_for_grpc_is_prepared() {
        let read = XdsBootstrap::from_json("bootstrap.json", ISTIO).unwrap();
        let path = "/etc/istio/proxy/XDS".to_owned();
        assert_eq!(read.control_plane(), &XdsControlPlane::Unix { path });
        let node = read.node().message();
        assert_eq!(node.id, "sidecar~10.0.0.7~shop-7d4b9.shop~shop.svc.cluster.local");
        let (region, zone) = ("a".to_owned(), "b".to_owned());
        assert_eq!(node.locality, Some(Locality { region, zone, sub_zone: String::new() }));
        assert!(node.metadata.is_some());
        assert_eq!(read.listener_of("shop:7000"), "shop:7000");
    }

    fn with_server(server: &str) -> Result<XdsBootstrap, ResolveError> {
        XdsBootstrap::from_json("b.json", &format!(r#"{{ "xds_servers": [{server}] }}"#))
    }

    #[test]
    fn the_first_supported_credentials_are_used() {
        let read = with_server(
            r#"{ "server_uri": "dns:///control.test:443", "channel_creds": [
                { "type": "google_default" },
                { "type": "tls", "config": {
                    "ca_certificate_file": "ca.pem",
                    "certificate_file": "cert.pem",
                    "private_key_file": "key.pem",
                    "refresh_interval": "60s"
                } },
                { "type": "insecure" }
            ] }"#,
        );
        let cert = Some(("cert.pem".to_owned(), "key.pem".to_owned()));
        let credentials = XdsCredentials::Tls { ca: Some("ca.pem".to_owned()), cert };
        let authority = "control.test:443".to_owned();
        let wanted = XdsControlPlane::Tcp { authority, credentials };
        assert_eq!(read.unwrap().control_plane(), &wanted);
    }

    #[test]
    fn a_template_yields_the_listeners_name() {
        let text = r#"{
            "xds_servers": [{ "server_uri": "a:1", "channel_creds": [{ "type": "insecure" }] }],
            "client_default_listener_resource_name_template": "shop/%s"
        }"#;
        let read = XdsBootstrap::from_json("b.json", text).unwrap();
        assert_eq!(read.listener_of("inventory"), "shop/inventory");
        let federated = text.replace("shop/%s", "xdstp://authority/%s");
        let error = XdsBootstrap::from_json("b.json", &federated).unwrap_err().to_string();
        let message = "b.json: client_default_listener_resource_name_template: xdstp: names";
        assert!(error.starts_with(message), "{error}");
    }

    #[test]
    fn faults_are_named_with_their_place() {
        for (text, reason) in [
            ("{\n  \"node\": {,}\n}", "b.json: not JSON: key must be a string at line 2 column 12"),
            ("[]", "b.json: it is not an object"),
            ("{}", "b.json: xds_servers names no control plane"),
            (r#"{ "xds_servers": {} }"#, "b.json: xds_servers is not a list"),
            (r#"{ "xds_servers": [{}] }"#, "b.json: xds_servers[0].server_uri is missing"),
        ] {
            let error = XdsBootstrap::from_json("b.json", text).unwrap_err().to_string();
            assert_eq!(error, reason);
        }
        for (server, reason) in [
            (r#"{ "server_uri": 7 }"#, "channel_creds has neither insecure nor tls: []"),
            (
                r#"{ "server_uri": "a:1", "channel_creds": [{ "type": "google_default" }] }"#,
                "xds_servers[0].channel_creds has neither insecure nor tls: [google_default]",
            ),
            (
                r#"{ "server_uri": "a", "channel_creds": [{ "type": "insecure" }] }"#,
                "xds_servers[0].server_uri: `a` is not host:port, dns:///host:port or unix:///path",
            ),
            (
                r#"{ "server_uri": "unix:///x", "channel_creds": [{ "type": "tls" }] }"#,
                "xds_servers[0].server_uri is a Unix socket, but xds_servers[0].channel_creds are",
            ),
            (
                r#"{ "server_uri": "a:1", "channel_creds": [
                    { "type": "tls", "config": { "certificate_file": "x" } }
                ] }"#,
                "channel_creds[0].config needs certificate_file and private_key_file, or neither",
            ),
        ] {
            let error = with_server(server).unwrap_err().to_string();
            assert!(error.contains(reason), "{error}");
        }
    }

    #[test]
    fn the_file_precedes_the_text() {
        let missing = Path::new("/nonexistent/bootstrap.json");
        let error = XdsBootstrap::from_either(Some(missing), Some(ISTIO)).unwrap_err().to_string();
        let message = "/nonexistent/bootstrap.json (GRPC_XDS_BOOTSTRAP): cannot read the xDS \
                       bootstrap file: ";
        assert!(error.starts_with(message), "{error}");
        assert!(XdsBootstrap::from_either(None, Some(ISTIO)).is_ok());
        let error = XdsBootstrap::from_either(None, Some("x")).unwrap_err().to_string();
        assert!(error.starts_with("GRPC_XDS_BOOTSTRAP_CONFIG: not JSON: "), "{error}");
        let error = XdsBootstrap::from_either(None, None).unwrap_err().to_string();
        assert!(error.ends_with("or write xds://host:port/name"), "{error}");
    }
}
