//! The path from a listener to endpoints: the resources on the way, and the result.

use std::collections::BTreeSet;

use farcall::balance::Endpoint;
use farcall::resolve::Scheme;

use super::resource::{Kind, Resource};
use super::route::{Listener, Routes, WeightedCluster};
use super::session::{Known, Session};
use super::shares;

/// The result of following a listener through the known resources.
#[derive(Debug, PartialEq)]
pub(super) struct Followed {
    /// The names to request, by kind. If the resource that names others is unknown, their requests
    /// stay as they are.
    pub(super) wanted: Vec<(Kind, BTreeSet<String>)>,
    pub(super) outcome: Outcome,
}

/// The result that resources lead to.
#[derive(Debug, PartialEq)]
pub(super) enum Outcome {
    /// At least one endpoint.
    Endpoints(Vec<Endpoint>),
    /// These resources have not arrived yet.
    Awaited(Vec<String>),
    /// There are no endpoints, for this reason.
    None(String),
}

/// The time that resources still have to arrive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Patience {
    /// The client waits for them.
    Waiting,
    /// A resource that has not arrived does not exist.
    Over,
}

/// Follows the listener `name`.
pub(super) fn follow(
    session: &Session,
    name: &str,
    scheme: Scheme,
    patience: Patience,
) -> Followed {
    let mut wanted = vec![(Kind::Listener, BTreeSet::from([name.to_owned()]))];
    let outcome = match routes(session, name, &mut wanted) {
        Ok(clusters) => cluster_endpoints(session, clusters, scheme, patience, &mut wanted),
        Err(Lacking::Awaited(what)) => Outcome::Awaited(vec![what]),
        Err(Lacking::None(reason)) => Outcome::None(reason),
    };
    Followed { wanted, outcome }
}

/// The reason why a resource leads no further.
#[derive(Debug, PartialEq)]
enum Lacking {
    /// The resource has not arrived yet.
    Awaited(String),
    /// The resource is unusable, for this reason.
    None(String),
}

fn look<'a>(session: &'a Session, kind: Kind, name: &str) -> Result<&'a Resource, Lacking> {
    let what = format!("the {} `{name}`", kind.name());
    match session.known(kind, name) {
        Known::There(resource) => Ok(resource),
        Known::Awaited => Err(Lacking::Awaited(what)),
        Known::Missing => Err(Lacking::None(format!("{what} does not exist"))),
        Known::Rejected(reason) => Err(Lacking::None(format!("{what} cannot be used: {reason}"))),
    }
}

/// Returns the clusters that a listener's routes lead to.
fn routes<'a>(
    session: &'a Session,
    name: &str,
    wanted: &mut Vec<(Kind, BTreeSet<String>)>,
) -> Result<&'a [WeightedCluster], Lacking> {
    let (what, routes): (String, &Routes) = match look(session, Kind::Listener, name)? {
        Resource::Listener(Listener::Inline(routes)) => {
            (format!("the {} `{name}`", Kind::Listener.name()), routes)
        }
        Resource::Listener(Listener::Named(routes)) => {
            wanted.push((Kind::Routes, BTreeSet::from([routes.clone()])));
            let what = format!("the {} `{routes}`", Kind::Routes.name());
            match look(session, Kind::Routes, routes)? {
                Resource::Routes(routes) => (what, routes),
                _ => return Err(Lacking::Awaited(what)),
            }
        }
        _ => return Err(Lacking::Awaited(format!("the {} `{name}`", Kind::Listener.name()))),
    };
    match routes {
        Ok(clusters) => Ok(clusters),
        Err(reason) => Err(Lacking::None(format!("{what} {reason}"))),
    }
}

/// Returns the endpoints of clusters.
fn cluster_endpoints(
    session: &Session,
    clusters: &[WeightedCluster],
    scheme: Scheme,
    patience: Patience,
    wanted: &mut Vec<(Kind, BTreeSet<String>)>,
) -> Outcome {
    wanted.push((Kind::Cluster, clusters.iter().map(|cluster| cluster.name.clone()).collect()));
    let (mut assignments, mut awaited, mut reasons) = (Vec::new(), Vec::new(), Vec::new());
    let mut lacks = |lacking| match lacking {
        Lacking::Awaited(what) => awaited.push(what),
        Lacking::None(reason) => reasons.push(reason),
    };
    let mut names = BTreeSet::new();
    let mut found = Vec::new();
    for WeightedCluster { name, weight } in clusters {
        match look(session, Kind::Cluster, name) {
            Ok(Resource::Cluster(assignment)) => {
                names.insert(assignment.clone());
                found.push((*weight, assignment));
            }
            Ok(_) => {}
            Err(lacking) => lacks(lacking),
        }
    }
    for (weight, name) in found {
        match look(session, Kind::Assignment, name) {
            Ok(Resource::Assignment(assignment)) if assignment.localities.is_empty() => {
                let what = format!("the {} `{name}`", Kind::Assignment.name());
                let state = match assignment.left_out {
                    0 => "has no endpoint".to_owned(),
                    count => format!("has no healthy endpoint of {count}"),
                };
                lacks(Lacking::None(format!("{what} {state}")));
            }
            Ok(Resource::Assignment(assignment)) => assignments.push((weight, assignment)),
            Ok(_) => {}
            Err(lacking) => lacks(lacking),
        }
    }
    if !names.is_empty() {
        wanted.push((Kind::Assignment, names));
    }
    // With patience left, one missing cluster delays the others: using them now would send them its
    // whole share of the calls.
    if !awaited.is_empty() && (patience == Patience::Waiting || assignments.is_empty()) {
        return Outcome::Awaited(awaited);
    }
    match shares::endpoints(&assignments, scheme) {
        endpoints if endpoints.is_empty() => Outcome::None(reasons.join("; ")),
        endpoints => Outcome::Endpoints(endpoints),
    }
}

#[cfg(test)]
mod tests {
    use prost::Message;
    use prost::bytes::Bytes;

    use super::*;
    use crate::api;
    use crate::node::XdsNode;

    const MANAGER: &str = "type.googleapis.com/envoy.extensions.filters.network.\
                           http_connection_manager.v3.HttpConnectionManager";

    fn any(url: &str, message: &impl Message) -> api::Any {
        api::Any { type_url: url.to_owned(), value: message.encode_to_vec().into() }
    }

    /// A client of one listener, and the number of its last response.
    struct Client {
        session: Session,
        patience: Patience,
    }

    impl Client {
        fn new() -> Self {
            let session = Session::new(XdsNode::new("node"), "shop".to_owned());
            Self { session, patience: Patience::Waiting }
        }

        fn tell(&mut self, kind: Kind, resources: &[Bytes]) {
            let response = api::DiscoveryResponse {
                version_info: String::new(),
                resources: resources.to_vec(),
                type_url: kind.url().to_owned(),
                nonce: String::new(),
            };
            let answer = self.session.handle(response).expect("the kind is asked for");
            assert_eq!(answer.rejected, None);
        }

        /// Returns the new requests, and the result.
        fn follow(&mut self) -> (Vec<(Kind, Vec<String>)>, Outcome) {
            let followed = follow(&self.session, "shop", Scheme::Tcp, self.patience);
            let requested = followed.wanted.into_iter().filter_map(|(kind, names)| {
                Some((kind, self.session.ask(kind, names)?.resource_names))
            });
            (requested.collect(), followed.outcome)
        }
    }

    fn listener(routes: &str) -> Bytes {
        let rds = Some(api::Rds { route_config_name: routes.to_owned() });
        let manager = api::HttpConnectionManager { rds, route_config: None };
        let api_listener = Some(api::ApiListener { api_listener: Some(any(MANAGER, &manager)) });
        let message = api::Listener { name: "shop".to_owned(), api_listener };
        any(Kind::Listener.url(), &message).encode_to_vec().into()
    }

    fn routes(name: &str, clusters: &[(&str, u32)]) -> Bytes {
        let weights = clusters.iter().map(|&(name, value)| {
            let weight = Some(api::UInt32 { value });
            api::ClusterWeight { name: name.to_owned(), weight }.encode_to_vec().into()
        });
        let weighted_clusters = Some(api::WeightedClusters { clusters: weights.collect() });
        let action = Some(api::RouteAction { cluster: String::new(), weighted_clusters });
        let condition =
            Some(api::RouteMatch { prefix: Some(String::new()), ..api::RouteMatch::default() });
        let host = api::VirtualHost {
            name: "all".to_owned(),
            domains: vec![Bytes::from_static(b"*")],
            routes: vec![api::Route { condition, action }.encode_to_vec().into()],
        };
        let virtual_hosts = vec![host.encode_to_vec().into()];
        let message = api::RouteConfiguration { name: name.to_owned(), virtual_hosts };
        any(Kind::Routes.url(), &message).encode_to_vec().into()
    }

    fn cluster(name: &str) -> Bytes {
        let service_name = format!("{name}.eds");
        let eds_cluster_config = Some(api::EdsClusterConfig { service_name });
        let message = api::Cluster { name: name.to_owned(), kind: Some(3), eds_cluster_config };
        any(Kind::Cluster.url(), &message).encode_to_vec().into()
    }

    /// Returns an assignment with an endpoint for each of these health states.
    fn assignment(name: &str, last: u8, states: &[i32]) -> Bytes {
        let endpoint = |health_status| {
            let port = Some(api::Port::Value(7000));
            let socket_address =
                Some(api::SocketAddress { address: format!("10.0.0.{last}"), port });
            let endpoint = api::Endpoint { address: Some(api::Address { socket_address }) };
            api::LbEndpoint { endpoint: Some(endpoint), health_status, load_balancing_weight: None }
        };
        let lb_endpoints = states.iter().map(|state| endpoint(*state).encode_to_vec().into());
        let locality = api::LocalityLbEndpoints {
            lb_endpoints: lb_endpoints.collect(),
            load_balancing_weight: None,
            priority: 0,
        };
        let endpoints = vec![locality.encode_to_vec().into()];
        let message = api::ClusterLoadAssignment { cluster_name: format!("{name}.eds"), endpoints };
        any(Kind::Assignment.url(), &message).encode_to_vec().into()
    }

    fn asks(kind: Kind, names: &[&str]) -> Vec<(Kind, Vec<String>)> {
        vec![(kind, names.iter().map(ToString::to_string).collect())]
    }

    fn awaits(what: &[&str]) -> Outcome {
        Outcome::Awaited(what.iter().map(ToString::to_string).collect())
    }

    fn gives(endpoints: &[(&str, u16)]) -> Outcome {
        let each = endpoints.iter().map(|&(at, weight)| Endpoint::new(at).with_weight(weight));
        Outcome::Endpoints(each.collect())
    }

    /// Returns a client with two clusters. The assignment of the first one has arrived.
    fn with_two_clusters() -> Client {
        let mut client = Client::new();
        assert_eq!(
            client.follow(),
            (asks(Kind::Listener, &["shop"]), awaits(&["the Listener `shop`"]))
        );
        client.tell(Kind::Listener, &[listener("r")]);
        let what = "the RouteConfiguration `r`";
        assert_eq!(client.follow(), (asks(Kind::Routes, &["r"]), awaits(&[what])));
        client.tell(Kind::Routes, &[routes("r", &[("a", 3), ("b", 1)])]);
        let what = ["the Cluster `a`", "the Cluster `b`"];
        assert_eq!(client.follow(), (asks(Kind::Cluster, &["a", "b"]), awaits(&what)));
        client.tell(Kind::Cluster, &[cluster("a"), cluster("b")]);
        let what = ["the ClusterLoadAssignment `a.eds`", "the ClusterLoadAssignment `b.eds`"];
        assert_eq!(client.follow(), (asks(Kind::Assignment, &["a.eds", "b.eds"]), awaits(&what)));
        client.tell(Kind::Assignment, &[assignment("a", 1, &[0])]);
        assert_eq!(client.follow(), (vec![], awaits(&what[1..])));
        client
    }

    #[test]
    fn each_resource_is_requested_once_it_is_named() {
        let mut client = with_two_clusters();
        client.tell(Kind::Assignment, &[assignment("b", 2, &[1])]);
        let both = [("tcp://10.0.0.1:7000", 3), ("tcp://10.0.0.2:7000", 1)];
        assert_eq!(client.follow(), (vec![], gives(&both)));
        client.tell(Kind::Routes, &[routes("r", &[("b", 1)])]);
        let (requested, outcome) = client.follow();
        let wanted = [asks(Kind::Cluster, &["b"]), asks(Kind::Assignment, &["b.eds"])].concat();
        assert_eq!((requested, outcome), (wanted, gives(&both[1..])));
    }

    #[test]
    fn a_missing_cluster_leaves_its_share_to_the_others() {
        let mut client = with_two_clusters();
        client.patience = Patience::Over;
        assert_eq!(client.follow(), (vec![], gives(&[("tcp://10.0.0.1:7000", 1)])));
    }

    #[test]
    fn a_dead_end_has_a_reason() {
        let mut client = with_two_clusters();
        client.tell(Kind::Assignment, &[assignment("a", 1, &[2, 3]), assignment("b", 1, &[])]);
        let message = "the ClusterLoadAssignment `a.eds` has no healthy endpoint of 2; \
                     the ClusterLoadAssignment `b.eds` has no endpoint";
        assert_eq!(client.follow(), (vec![], Outcome::None(message.to_owned())));
        client.tell(Kind::Listener, &[]);
        let message = "the Listener `shop` does not exist";
        assert_eq!(client.follow(), (vec![], Outcome::None(message.to_owned())));
    }

    #[test]
    fn requests_stay_while_their_source_is_unknown() {
        let mut client = with_two_clusters();
        client.tell(Kind::Listener, &[listener("other")]);
        let what = awaits(&["the RouteConfiguration `other`"]);
        assert_eq!(client.follow(), (asks(Kind::Routes, &["other"]), what));
        client.tell(Kind::Routes, &[routes("other", &[("a", 1), ("b", 1)])]);
        // The clusters and assignments are still known.
        assert_eq!(client.follow(), (vec![], awaits(&["the ClusterLoadAssignment `b.eds`"])));
    }
}
