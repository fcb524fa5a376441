//! Services as the resources of a control plane.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use envoy_types::pb::envoy::config::cluster::v3::Cluster;
use envoy_types::pb::envoy::config::cluster::v3::cluster::{
    ClusterDiscoveryType, DiscoveryType, EdsClusterConfig,
};
use envoy_types::pb::envoy::config::core::v3::address::Address as AddressKind;
use envoy_types::pb::envoy::config::core::v3::config_source::ConfigSourceSpecifier;
use envoy_types::pb::envoy::config::core::v3::socket_address::PortSpecifier;
use envoy_types::pb::envoy::config::core::v3::{
    Address, AggregatedConfigSource, ConfigSource, HealthStatus, Locality, SocketAddress,
};
use envoy_types::pb::envoy::config::endpoint::v3::lb_endpoint::HostIdentifier;
use envoy_types::pb::envoy::config::endpoint::v3::{
    ClusterLoadAssignment, Endpoint, LbEndpoint, LocalityLbEndpoints,
};
use envoy_types::pb::envoy::config::listener::v3::{ApiListener, Listener};
use envoy_types::pb::envoy::config::route::v3::route::Action;
use envoy_types::pb::envoy::config::route::v3::route_action::ClusterSpecifier;
use envoy_types::pb::envoy::config::route::v3::route_match::PathSpecifier;
use envoy_types::pb::envoy::config::route::v3::{
    Route, RouteAction, RouteConfiguration, RouteMatch, VirtualHost,
};
use envoy_types::pb::envoy::extensions::filters::network::http_connection_manager::v3::{
    HttpConnectionManager, Rds, http_connection_manager::RouteSpecifier,
};
use envoy_types::pb::google::protobuf::{Any, UInt32Value};

use super::Resources;

const LISTENER: &str = "type.googleapis.com/envoy.config.listener.v3.Listener";
const MANAGER: &str = "type.googleapis.com/envoy.extensions.filters.network.\
                       http_connection_manager.v3.HttpConnectionManager";
const ROUTES: &str = "type.googleapis.com/envoy.config.route.v3.RouteConfiguration";
const CLUSTER: &str = "type.googleapis.com/envoy.config.cluster.v3.Cluster";
const ASSIGNMENT: &str = "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment";

/// A service, and where it is served.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Service {
    /// Its name, which is its listener's.
    pub name: String,
    /// Its servers.
    pub endpoints: Vec<ServiceEndpoint>,
}

/// A server of a service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ServiceEndpoint {
    /// Address that it listens on.
    pub address: SocketAddr,
    /// Health, which decides whether it gets calls.
    pub health: Health,
}

/// A server's health by its control plane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Health {
    /// It serves.
    Healthy,
    /// It does not.
    Unhealthy,
    /// It is about to go.
    Draining,
}

impl Service {
    /// The service `name` at these addresses, of which each serves.
    #[must_use]
    pub fn new(name: &str, addresses: impl IntoIterator<Item = SocketAddr>) -> Self {
        let endpoint = |address| ServiceEndpoint { address, health: Health::Healthy };
        let endpoints = addresses.into_iter().map(endpoint).collect();
        Self { name: name.to_owned(), endpoints }
    }

    fn routes_name(&self) -> String {
        format!("{}.routes", self.name)
    }

    fn cluster_name(&self) -> String {
        format!("outbound|{}", self.name)
    }

    fn assignment_name(&self) -> String {
        format!("{}.endpoints", self.name)
    }
}

fn any(url: &str, message: &impl prost::Message) -> Any {
    Any { type_url: url.to_owned(), value: message.encode_to_vec() }
}

/// From the same control plane, on the same stream.
fn aggregated() -> Option<ConfigSource> {
    let config_source_specifier = Some(ConfigSourceSpecifier::Ads(AggregatedConfigSource {}));
    Some(ConfigSource { config_source_specifier, ..ConfigSource::default() })
}

/// The resources of services.
pub(super) fn of(services: &[Service]) -> Resources {
    let mut resources = Resources::new();
    for service in services {
        let named = [
            (LISTENER, service.name.clone(), listener(service)),
            (ROUTES, service.routes_name(), routes(service)),
            (CLUSTER, service.cluster_name(), cluster(service)),
            (ASSIGNMENT, service.assignment_name(), assignment(service)),
        ];
        for (url, name, resource) in named {
            resources.entry(url.to_owned()).or_default().insert(name, resource);
        }
    }
    resources
}

/// Cuts every list of endpoints in the middle.
pub(super) fn break_endpoints(resources: &mut Resources) {
    let assignments = resources.get_mut(ASSIGNMENT).into_iter().flat_map(BTreeMap::values_mut);
    assignments.for_each(|any| any.value.truncate(any.value.len() / 2));
}

fn listener(service: &Service) -> Any {
    let rds = Rds { config_source: aggregated(), route_config_name: service.routes_name() };
    let route_specifier = Some(RouteSpecifier::Rds(rds));
    let manager = HttpConnectionManager { route_specifier, ..HttpConnectionManager::default() };
    let api_listener = Some(ApiListener { api_listener: Some(any(MANAGER, &manager)) });
    let name = service.name.clone();
    any(LISTENER, &Listener { name, api_listener, ..Listener::default() })
}

fn routes(service: &Service) -> Any {
    let cluster_specifier = Some(ClusterSpecifier::Cluster(service.cluster_name()));
    let action = RouteAction { cluster_specifier, ..RouteAction::default() };
    let path_specifier = Some(PathSpecifier::Prefix(String::new()));
    let route = Route {
        r#match: Some(RouteMatch { path_specifier, ..RouteMatch::default() }),
        action: Some(Action::Route(action)),
        ..Route::default()
    };
    let virtual_host = VirtualHost {
        name: "all".to_owned(),
        domains: vec![service.name.clone()],
        routes: vec![route],
        ..VirtualHost::default()
    };
    let (name, virtual_hosts) = (service.routes_name(), vec![virtual_host]);
    any(ROUTES, &RouteConfiguration { name, virtual_hosts, ..RouteConfiguration::default() })
}

fn cluster(service: &Service) -> Any {
    let service_name = service.assignment_name();
    let cluster = Cluster {
        name: service.cluster_name(),
        cluster_discovery_type: Some(ClusterDiscoveryType::Type(DiscoveryType::Eds.into())),
        eds_cluster_config: Some(EdsClusterConfig { eds_config: aggregated(), service_name }),
        ..Cluster::default()
    };
    any(CLUSTER, &cluster)
}

fn assignment(service: &Service) -> Any {
    let locality = LocalityLbEndpoints {
        locality: Some(Locality { zone: "a".to_owned(), ..Locality::default() }),
        lb_endpoints: service.endpoints.iter().map(lb_endpoint).collect(),
        load_balancing_weight: Some(UInt32Value { value: 1 }),
        ..LocalityLbEndpoints::default()
    };
    let assignment = ClusterLoadAssignment {
        cluster_name: service.assignment_name(),
        endpoints: vec![locality],
        ..ClusterLoadAssignment::default()
    };
    any(ASSIGNMENT, &assignment)
}

fn lb_endpoint(endpoint: &ServiceEndpoint) -> LbEndpoint {
    let ServiceEndpoint { address, health } = endpoint;
    let health_status = match health {
        Health::Healthy => HealthStatus::Healthy,
        Health::Unhealthy => HealthStatus::Unhealthy,
        Health::Draining => HealthStatus::Draining,
    };
    let socket_address = SocketAddress {
        address: address.ip().to_string(),
        port_specifier: Some(PortSpecifier::PortValue(address.port().into())),
        ..SocketAddress::default()
    };
    let address = Some(Address { address: Some(AddressKind::SocketAddress(socket_address)) });
    LbEndpoint {
        host_identifier: Some(HostIdentifier::Endpoint(Endpoint {
            address,
            ..Endpoint::default()
        })),
        health_status: health_status.into(),
        ..LbEndpoint::default()
    }
}
