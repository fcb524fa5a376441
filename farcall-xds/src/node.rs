//! The node of an xDS client, as in gRPC's bootstrap file.

use std::collections::BTreeMap;

use prost::{Message, Oneof};
use serde_json::Value;

use super::api;

/// Maximum depth of metadata. Deeper values are left out, because encoding is recursive.
const MAX_DEPTH: usize = 32;

/// The identity of the client. The control plane uses it to decide what to send, and may refuse
/// unknown clients.
///
/// [`XdsBootstrap`](super::XdsBootstrap) reads a node with everything that gRPC's clients can
/// express.
///
/// # Examples
///
/// ```
/// use farcall_xds::XdsNode;
///
/// let node = XdsNode::new("shop-7d4b9").with_cluster("shop");
/// # drop(node);
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct XdsNode {
    id: String,
    cluster: String,
    locality: Option<api::Locality>,
    metadata: serde_json::Map<String, Value>,
}

impl XdsNode {
    /// Creates the node `id`.
    #[must_use]
    pub fn new(id: impl Into<String>) -> Self {
        let metadata = serde_json::Map::new();
        Self { id: id.into(), cluster: String::new(), locality: None, metadata }
    }

    /// Sets the name of the group that the node belongs to. None by default.
    #[must_use]
    pub fn with_cluster(self, cluster: impl Into<String>) -> Self {
        Self { cluster: cluster.into(), ..self }
    }

    /// Sets the node's location.
    pub(super) fn with_locality(self, locality: api::Locality) -> Self {
        Self { locality: Some(locality), ..self }
    }

    /// Sets further metadata for the control plane, such as Istio's `GENERATOR`.
    pub(super) fn with_metadata(self, metadata: serde_json::Map<String, Value>) -> Self {
        Self { metadata, ..self }
    }

    /// Builds the node's message.
    pub(super) fn message(&self) -> api::Node {
        let metadata = (!self.metadata.is_empty())
            .then(|| Struct::of(&self.metadata, MAX_DEPTH).encode_to_vec().into());
        api::Node {
            id: self.id.clone(),
            cluster: self.cluster.clone(),
            metadata,
            locality: self.locality.clone(),
            user_agent_name: "farcall".to_owned(),
            user_agent_version: env!("CARGO_PKG_VERSION").to_owned(),
            // As gRPC's clients: a priority is used as a whole or not at all.
            client_features: vec!["envoy.lb.does_not_support_overprovisioning".to_owned()],
        }
    }
}

/// `google.protobuf.Struct`.
#[derive(Clone, PartialEq, Message)]
struct Struct {
    #[prost(btree_map = "string, message", tag = "1")]
    fields: BTreeMap<String, Json>,
}

/// `google.protobuf.Value`.
#[derive(Clone, PartialEq, Message)]
struct Json {
    #[prost(oneof = "Kind", tags = "1, 2, 3, 4, 5, 6")]
    kind: Option<Kind>,
}

#[derive(Clone, PartialEq, Oneof)]
enum Kind {
    #[prost(int32, tag = "1")]
    Null(i32),
    #[prost(double, tag = "2")]
    Number(f64),
    #[prost(string, tag = "3")]
    Text(String),
    #[prost(bool, tag = "4")]
    Bool(bool),
    #[prost(message, tag = "5")]
    Struct(Struct),
    #[prost(message, tag = "6")]
    List(List),
}

/// `google.protobuf.ListValue`.
#[derive(Clone, PartialEq, Message)]
struct List {
    #[prost(message, repeated, tag = "1")]
    values: Vec<Json>,
}

impl Struct {
    fn of(fields: &serde_json::Map<String, Value>, depth: usize) -> Self {
        let fields = fields
            .iter()
            .filter_map(|(key, value)| Some((key.clone(), Json::of(value, depth.checked_sub(1)?))));
        Self { fields: fields.collect() }
    }
}

impl Json {
    fn of(value: &Value, depth: usize) -> Self {
        let kind = match value {
            Value::Null => Kind::Null(0),
            Value::Bool(value) => Kind::Bool(*value),
            Value::Number(value) => Kind::Number(value.as_f64().unwrap_or_default()),
            Value::String(value) => Kind::Text(value.clone()),
            Value::Object(fields) => Kind::Struct(Struct::of(fields, depth)),
            Value::Array(values) => {
                let inner = depth.checked_sub(1);
                let values = inner.map(|depth| values.iter().map(move |it| Self::of(it, depth)));
                Kind::List(List { values: values.into_iter().flatten().collect() })
            }
        };
        Self { kind: Some(kind) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn metadata(text: &str) -> Struct {
        let fields = serde_json::from_str(text).unwrap();
        let message = XdsNode::new("a").with_metadata(fields).message();
        Struct::decode(message.metadata.unwrap()).unwrap()
    }

    #[test]
    fn metadata_keeps_its_types() {
        let text = r#"{"GENERATOR": "grpc", "n": 1.5, "b": true, "none": null, "l": [{"a": "x"}]}"#;
        let kind = |name: &str| metadata(text).fields[name].kind.clone().unwrap();
        assert_eq!(kind("GENERATOR"), Kind::Text("grpc".to_owned()));
        assert_eq!(kind("n"), Kind::Number(1.5));
        assert_eq!(kind("b"), Kind::Bool(true));
        assert_eq!(kind("none"), Kind::Null(0));
        let inner = metadata(r#"{"a": "x"}"#);
        let values = vec![Json { kind: Some(Kind::Struct(inner)) }];
        assert_eq!(kind("l"), Kind::List(List { values }));
    }

    #[test]
    fn metadata_is_cut_at_its_maximum_depth() {
        let depth = MAX_DEPTH + 20;
        let text = format!("{}1{}", r#"{"a":"#.repeat(depth), "}".repeat(depth));
        let mut found = 0;
        let mut inner = metadata(&text);
        while let Some(Json { kind: Some(Kind::Struct(next)) }) = inner.fields.remove("a") {
            (inner, found) = (next, found + 1);
        }
        assert_eq!(found, MAX_DEPTH);
    }

    #[test]
    fn a_node_without_metadata_sends_none() {
        let message = XdsNode::new("a").with_cluster("b").message();
        assert_eq!((message.id.as_str(), message.cluster.as_str()), ("a", "b"));
        assert_eq!(message.metadata, None);
    }
}
