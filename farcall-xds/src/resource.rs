//! Resources from a control plane, by kind, reduced to the parts that the client uses.
//!
//! ```text
//!   Listener ──> RouteConfiguration ──> Cluster ──> ClusterLoadAssignment
//!    (LDS)            (RDS)              (CDS)            (EDS)
//! ```

use prost::Message;
use prost::bytes::Bytes;

use super::api::{self, Any, Wrapped};
use super::assignment::{self, Assignment};
use super::route::{self, Listener, Routes};

/// The kind of a resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    Listener,
    Routes,
    Cluster,
    Assignment,
}

/// The discovery type of clusters whose endpoints are separate resources (`DiscoveryType.EDS`).
const BY_ASSIGNMENT: i32 = 3;

/// The prefix of every type URL.
const URL_PREFIX: &str = "type.googleapis.com/";

/// The type of a wrapper around a resource.
const WRAPPED: &str = "type.googleapis.com/envoy.service.discovery.v3.Resource";

impl Kind {
    /// All kinds, each after the one that names it.
    pub(super) const ALL: [Self; 4] =
        [Self::Listener, Self::Routes, Self::Cluster, Self::Assignment];

    /// Returns the type URL.
    pub(super) fn url(self) -> &'static str {
        match self {
            Self::Listener => "type.googleapis.com/envoy.config.listener.v3.Listener",
            Self::Routes => "type.googleapis.com/envoy.config.route.v3.RouteConfiguration",
            Self::Cluster => "type.googleapis.com/envoy.config.cluster.v3.Cluster",
            Self::Assignment => {
                "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment"
            }
        }
    }

    /// Returns the kind with this type URL.
    pub(super) fn from_url(url: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.url() == url)
    }

    /// Returns the type's name, as users know it from their control plane.
    pub(super) fn name(self) -> &'static str {
        self.url().rsplit('.').next().unwrap_or_default()
    }

    /// Returns true if each response contains all requested resources of this kind. A missing one
    /// then does not exist.
    pub(super) fn is_complete(self) -> bool {
        matches!(self, Self::Listener | Self::Cluster)
    }
}

/// A resource.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Resource {
    Listener(Listener),
    Routes(Routes),
    /// The name of the cluster's assignment.
    Cluster(String),
    Assignment(Assignment),
}

/// A resource by name, or the reason why it is unusable.
pub(super) type Decoded = (String, Result<Resource, String>);

/// Decodes a resource of `kind`. `host` is the target's name, which selects virtual hosts.
///
/// # Errors
///
/// Returns an error if the resource's name is unknown.
pub(super) fn decode(kind: Kind, bytes: Bytes, host: &str) -> Result<Decoded, String> {
    let mut any = Any::decode(bytes).map_err(undecodable(kind))?;
    if any.type_url == WRAPPED {
        let wrapped = Wrapped::decode(any.value).map_err(undecodable(kind))?;
        any = wrapped.resource.unwrap_or_default();
    }
    if any.type_url != kind.url() {
        let found = any.type_url.strip_prefix(URL_PREFIX).unwrap_or(&any.type_url);
        return Err(format!("expected a {}, found a `{found}`", kind.name()));
    }
    let bytes = any.value;
    match kind {
        Kind::Listener => {
            let message = api::Listener::decode(bytes).map_err(undecodable(kind))?;
            let name = message.name.clone();
            Ok((name, route::listener(message, host).map(Resource::Listener)))
        }
        Kind::Routes => {
            let message = api::RouteConfiguration::decode(bytes).map_err(undecodable(kind))?;
            let name = message.name.clone();
            Ok((name, route::routes(message, host).map(Resource::Routes)))
        }
        Kind::Cluster => {
            let message = api::Cluster::decode(bytes).map_err(undecodable(kind))?;
            let name = message.name.clone();
            Ok((name, cluster(message).map(Resource::Cluster)))
        }
        Kind::Assignment => {
            let message = api::ClusterLoadAssignment::decode(bytes).map_err(undecodable(kind))?;
            let name = message.cluster_name.clone();
            Ok((name, assignment::assignment(message).map(Resource::Assignment)))
        }
    }
}

fn undecodable(kind: Kind) -> impl Fn(prost::DecodeError) -> String {
    move |error| format!("cannot decode a {}: {error}", kind.name())
}

/// Returns the name of the cluster's assignment.
fn cluster(message: api::Cluster) -> Result<String, String> {
    if message.kind != Some(BY_ASSIGNMENT) {
        return Err("its type is not EDS, the only one supported".to_owned());
    }
    let named = message.eds_cluster_config.map(|config| config.service_name);
    api::checked(named.filter(|name| !name.is_empty()).unwrap_or(message.name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn any(url: &str, message: &impl Message) -> Any {
        Any { type_url: url.to_owned(), value: message.encode_to_vec().into() }
    }

    fn cluster_named(name: &str, kind: Option<i32>, service: &str) -> api::Cluster {
        let service_name = service.to_owned();
        let eds_cluster_config = Some(api::EdsClusterConfig { service_name });
        api::Cluster { name: name.to_owned(), kind, eds_cluster_config }
    }

    fn decoded(any: &Any) -> Result<Decoded, String> {
        decode(Kind::Cluster, any.encode_to_vec().into(), "shop")
    }

    #[test]
    fn a_cluster_names_its_assignment() {
        let url = Kind::Cluster.url();
        let is = |name: &str, of| Ok((name.to_owned(), Ok(Resource::Cluster(of))));
        let named = any(url, &cluster_named("shop", Some(3), "shop.eds"));
        assert_eq!(decoded(&named), is("shop", "shop.eds".to_owned()));
        let unnamed = any(url, &cluster_named("shop", Some(3), ""));
        assert_eq!(decoded(&unnamed), is("shop", "shop".to_owned()));
        let wrapped = any(WRAPPED, &Wrapped { resource: Some(unnamed) });
        assert_eq!(decoded(&wrapped), is("shop", "shop".to_owned()));
    }

    #[test]
    fn an_unusable_resource_has_a_reason() {
        let url = Kind::Cluster.url();
        let (name, why) = decoded(&any(url, &cluster_named("shop", None, ""))).unwrap();
        assert_eq!(name, "shop");
        assert_eq!(why.unwrap_err(), "its type is not EDS, the only one supported");
        let other = any(Kind::Listener.url(), &api::Listener::default());
        let error = decoded(&other).unwrap_err();
        let message = "expected a Cluster, found a `envoy.config.listener.v3.Listener`";
        assert_eq!(error, message);
        let garbage = Any { type_url: url.to_owned(), value: vec![0xff; 9].into() };
        let error = decoded(&garbage).unwrap_err();
        assert!(error.starts_with("cannot decode a Cluster: "), "{error}");
    }
}
