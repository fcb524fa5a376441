//! The weight of each endpoint, from the weights of clusters, localities and endpoints.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use farcall::balance::Endpoint;
use farcall::resolve::Scheme;

use super::assignment::{Assignment, Locality, MAX_ENDPOINTS};

/// Maximum weight if the shares are not in a ratio of small integers.
const MAX_WEIGHT: f64 = 1000.0;

/// Tolerance for a ratio that counts as an integer: sums of quotients are inexact.
const TOLERANCE: f64 = 1e-6;

/// Returns the endpoints of weighted clusters, at most [`MAX_ENDPOINTS`].
///
/// In each cluster, the endpoints with the lowest priority get the cluster's share. A cluster
/// without endpoints leaves its share to the others.
pub(super) fn endpoints(clusters: &[(u32, &Assignment)], scheme: Scheme) -> Vec<Endpoint> {
    let mut shares = BTreeMap::<SocketAddr, f64>::new();
    for (weight, assignment) in clusters {
        let localities = first_priority(assignment);
        let each = localities.iter().map(|locality| f64::from(share_of(locality, &localities)));
        let all: f64 = each.clone().sum();
        for (locality, share) in localities.iter().zip(each) {
            let weights = locality.endpoints.iter().map(|it| f64::from(it.weight));
            let sum: f64 = weights.clone().sum();
            for (endpoint, own) in locality.endpoints.iter().zip(weights) {
                let share = f64::from(*weight) * (share / all) * (own / sum);
                *shares.entry(endpoint.address).or_default() += share;
            }
        }
    }
    shares.retain(|_, share| *share > 0.0);
    while shares.len() > MAX_ENDPOINTS {
        shares.pop_last();
    }
    let weights = weights(shares.values().copied());
    let address = |address| format!("{}://{address}", scheme.as_str());
    let each = shares.keys().zip(weights);
    each.map(|(at, weight)| Endpoint::new(address(at)).with_weight(weight)).collect()
}

/// Returns the localities with the lowest priority. If any of them has a weight, those without one
/// get no calls, as in gRPC.
fn first_priority(assignment: &Assignment) -> Vec<&Locality> {
    let lowest = assignment.localities.iter().map(|it| it.priority).min();
    let mut first: Vec<_> =
        assignment.localities.iter().filter(|it| Some(it.priority) == lowest).collect();
    if first.iter().any(|it| it.weight > 0) {
        first.retain(|it| it.weight > 0);
    }
    first
}

/// Returns a locality's share. If no locality has a weight, its share is the sum of its endpoints'
/// weights, so that endpoints count equally everywhere.
fn share_of(locality: &Locality, all: &[&Locality]) -> u32 {
    match all.iter().any(|it| it.weight > 0) {
        true => locality.weight,
        false => locality.endpoints.iter().fold(0, |sum, it| sum.saturating_add(it.weight)),
    }
}

/// Returns integer weights in the ratio of these shares, as far as 16 bits allow.
fn weights(shares: impl Iterator<Item = f64> + Clone) -> Vec<u16> {
    let least = shares.clone().fold(f64::INFINITY, f64::min);
    let most = shares.clone().fold(0.0, f64::max);
    let is_integer = |ratio: f64| (ratio - ratio.round()).abs() < TOLERANCE * ratio;
    let fits = most / least <= f64::from(u16::MAX);
    let unit = match fits && shares.clone().all(|share| is_integer(share / least)) {
        true => least,
        false => most / MAX_WEIGHT,
    };
    // The choice of the unit keeps it in range.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    shares.map(|share| ((share / unit).round() as u16).max(1)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::assignment::WeightedEndpoint;

    fn locality(priority: u32, weight: u32, endpoints: &[(u8, u32)]) -> Locality {
        let endpoints = endpoints.iter().map(|&(last, weight)| {
            let address = SocketAddr::from(([10, 0, 0, last], 7000));
            WeightedEndpoint { address, weight }
        });
        Locality { priority, weight, endpoints: endpoints.collect() }
    }

    fn assignment(localities: &[Locality]) -> Assignment {
        Assignment { localities: localities.to_vec(), left_out: 0 }
    }

    /// Returns the last number of each address, and its weight.
    fn shared(clusters: &[(u32, &Assignment)]) -> Vec<(u8, u16)> {
        let each = endpoints(clusters, Scheme::Tcp).into_iter().map(|endpoint| {
            let address = endpoint.address.strip_prefix("tcp://").unwrap();
            let address: SocketAddr = address.parse().unwrap();
            let SocketAddr::V4(address) = address else { panic!("{address}") };
            (address.ip().octets()[3], endpoint.weight)
        });
        each.collect()
    }

    #[test]
    fn endpoints_without_weights_are_equal() {
        let one = assignment(&[locality(0, 0, &[(1, 1), (2, 1)]), locality(0, 0, &[(3, 1)])]);
        assert_eq!(shared(&[(1, &one)]), [(1, 1), (2, 1), (3, 1)]);
    }

    #[test]
    fn weights_of_all_levels_are_multiplied() {
        // Half of 3/4 each, and a quarter. The third has no weight, and the others do.
        let one = assignment(&[
            locality(0, 3, &[(1, 1), (2, 1)]),
            locality(0, 1, &[(3, 7)]),
            locality(0, 0, &[(4, 1)]),
        ]);
        let canary = assignment(&[locality(0, 0, &[(5, 1)])]);
        assert_eq!(shared(&[(1, &one)]), [(1, 1000), (2, 1000), (3, 667)]);
        let plain = assignment(&[locality(0, 0, &[(1, 1), (2, 2)])]);
        assert_eq!(shared(&[(3, &plain), (1, &canary)]), [(1, 1), (2, 2), (5, 1)]);
    }

    #[test]
    fn the_lowest_priority_that_has_endpoints_is_used() {
        let one = assignment(&[locality(2, 0, &[(2, 1)]), locality(1, 5, &[(1, 1)])]);
        assert_eq!(shared(&[(1, &one)]), [(1, 1)]);
        let none = assignment(&[]);
        assert_eq!(shared(&[(9, &none), (1, &one)]), [(1, 1)]);
        assert_eq!(shared(&[(9, &none)]), []);
    }

    #[test]
    fn an_endpoint_of_two_clusters_has_both_shares() {
        let one = assignment(&[locality(0, 0, &[(1, 1)])]);
        let both = assignment(&[locality(0, 0, &[(1, 1), (2, 1)])]);
        assert_eq!(shared(&[(1, &one), (1, &both)]), [(1, 3), (2, 1)]);
    }

    #[test]
    fn weights_stay_within_a_bounded_ratio() {
        let one = assignment(&[locality(0, 0, &[(1, 1), (2, u32::MAX)])]);
        assert_eq!(shared(&[(1, &one)]), [(1, 1), (2, 1000)]);
    }
}
