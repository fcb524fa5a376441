//! Assignments: the endpoints of a cluster.

use std::net::{IpAddr, SocketAddr};

use prost::bytes::Bytes;

use super::api;

/// Maximum number of endpoints kept per assignment. Others are left out.
pub(super) const MAX_ENDPOINTS: usize = 10_000;

/// The health states in which an endpoint gets calls: unknown and healthy.
const USED_STATES: [i32; 2] = [0, 1];

/// The endpoints of a cluster that get calls.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Assignment {
    pub(super) localities: Vec<Locality>,
    /// Number of other endpoints: unhealthy, draining, or beyond the limit.
    pub(super) left_out: usize,
}

/// The endpoints of one locality, at least one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Locality {
    /// The priority. Only the lowest one gets calls.
    pub(super) priority: u32,
    /// The locality's weight among the localities; zero if it has none.
    pub(super) weight: u32,
    pub(super) endpoints: Vec<WeightedEndpoint>,
}

/// An endpoint with its weight among the endpoints of its locality.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct WeightedEndpoint {
    pub(super) address: SocketAddr,
    pub(super) weight: u32,
}

/// Reads an assignment.
///
/// # Errors
///
/// Returns an error if a usable endpoint has no IP address with a port, or a weight of zero.
pub(super) fn assignment(message: api::ClusterLoadAssignment) -> Result<Assignment, String> {
    let mut read = Assignment::default();
    let mut count = 0;
    for bytes in message.endpoints {
        let locality: api::LocalityLbEndpoints = api::decoded(bytes)?;
        let mut endpoints = Vec::new();
        for bytes in locality.lb_endpoints {
            match endpoint(bytes)? {
                Some(endpoint) if count < MAX_ENDPOINTS => {
                    endpoints.push(endpoint);
                    count += 1;
                }
                Some(_) | None => read.left_out += 1,
            }
        }
        if !endpoints.is_empty() {
            let weight = locality.load_balancing_weight.unwrap_or_default().value;
            let priority = locality.priority;
            read.localities.push(Locality { priority, weight, endpoints });
        }
    }
    Ok(read)
}

/// Reads an endpoint. Returns `None` if it gets no calls.
fn endpoint(bytes: Bytes) -> Result<Option<WeightedEndpoint>, String> {
    let message: api::LbEndpoint = api::decoded(bytes)?;
    if !USED_STATES.contains(&message.health_status) {
        return Ok(None);
    }
    let address = message.endpoint.and_then(|it| it.address).and_then(|it| it.socket_address);
    let address = socket_address(address.ok_or("an endpoint has no socket_address")?)?;
    let weight = message.load_balancing_weight.map_or(1, |weight| weight.value);
    match weight {
        0 => Err(format!("the endpoint {address} has the weight 0")),
        _ => Ok(Some(WeightedEndpoint { address, weight })),
    }
}

fn socket_address(message: api::SocketAddress) -> Result<SocketAddr, String> {
    let address = message.address;
    let ip: IpAddr =
        address.parse().map_err(|_| format!("the endpoint `{address}` is not an IP address"))?;
    match message.port {
        Some(api::Port::Value(port)) => match u16::try_from(port) {
            Ok(port) if port > 0 => Ok(SocketAddr::new(ip, port)),
            _ => Err(format!("the endpoint {ip} has the port {port}")),
        },
        Some(api::Port::Name(name)) => {
            Err(format!("the endpoint {ip} has the port name `{name}`, not a number"))
        }
        None => Err(format!("the endpoint {ip} has no port")),
    }
}

#[cfg(test)]
mod tests {
    use prost::Message;

    use super::*;

    fn endpoint_at(address: &str, port: Option<api::Port>, health_status: i32) -> api::LbEndpoint {
        let socket_address = Some(api::SocketAddress { address: address.to_owned(), port });
        let endpoint = api::Endpoint { address: Some(api::Address { socket_address }) };
        api::LbEndpoint { endpoint: Some(endpoint), health_status, load_balancing_weight: None }
    }

    fn read(endpoints: &[api::LbEndpoint]) -> Result<Assignment, String> {
        let lb_endpoints = endpoints.iter().map(|it| it.encode_to_vec().into()).collect();
        let locality =
            api::LocalityLbEndpoints { lb_endpoints, load_balancing_weight: None, priority: 0 };
        let endpoints = vec![locality.encode_to_vec().into()];
        assignment(api::ClusterLoadAssignment { cluster_name: "shop".to_owned(), endpoints })
    }

    #[test]
    fn endpoints_in_unusable_states_are_left_out() {
        let port = || Some(api::Port::Value(7000));
        // Unknown, healthy, unhealthy, draining, timed out, degraded.
        let states: Vec<_> = (0..6).map(|state| endpoint_at("10.0.0.1", port(), state)).collect();
        let read = read(&states).unwrap();
        assert_eq!((read.localities[0].endpoints.len(), read.left_out), (2, 4));
    }

    #[test]
    fn an_endpoint_without_an_address_is_named() {
        use api::Port::{Name, Value};
        let mut weightless = endpoint_at("10.0.0.1", Some(Value(1)), 0);
        weightless.load_balancing_weight = Some(api::UInt32 { value: 0 });
        for (endpoint, reason) in [
            (endpoint_at("shop.test", Some(Value(1)), 0), "`shop.test` is not an IP address"),
            (endpoint_at("10.0.0.1", Some(Value(70_000)), 0), "has the port 70000"),
            (endpoint_at("10.0.0.1", Some(Value(0)), 0), "has the port 0"),
            (
                endpoint_at("::1", Some(Name("web".to_owned())), 0),
                "has the port name `web`, not a \
                          number",
            ),
            (endpoint_at("::1", None, 0), "the endpoint ::1 has no port"),
            (weightless, "the endpoint 10.0.0.1:1 has the weight 0"),
            (api::LbEndpoint::default(), "an endpoint has no socket_address"),
        ] {
            let error = read(&[endpoint]).unwrap_err();
            assert!(error.contains(reason), "{error}");
        }
    }

    #[test]
    fn endpoints_beyond_the_limit_are_left_out() {
        let one = endpoint_at("10.0.0.1", Some(api::Port::Value(1)), 0);
        let read = read(&vec![one; MAX_ENDPOINTS + 5]).unwrap();
        assert_eq!((read.localities[0].endpoints.len(), read.left_out), (MAX_ENDPOINTS, 5));
    }
}
