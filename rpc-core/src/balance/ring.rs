//! A hash ring: which endpoint a key belongs to, so that few keys move when endpoints come or go.

/// Points of the ring for each unit of weight. With 160 the shares of equal endpoints differ by
/// about a tenth (ketama uses as many).
const POINTS: u32 = 160;

/// The longest ring: 64 Ki points of 16 bytes. Heavier lists have fewer points for each weight.
const MAX_POINTS: u64 = 1 << 16;

/// Endpoints on a ring of 2^64 places.
#[derive(Debug, Default)]
pub(super) struct Ring {
    /// Sorted by place. The index is that of the list that the ring was built from.
    points: Box<[(u64, u32)]>,
}

impl Ring {
    /// The ring of endpoints with these addresses, numbers of their connections, and weights.
    pub(super) fn new<'a>(endpoints: impl Iterator<Item = (&'a str, u16, u16)> + Clone) -> Self {
        let total: u64 = endpoints.clone().map(|(.., weight)| u64::from(weight)).sum();
        let per_weight = f64::from(POINTS).min(MAX_POINTS as f64 / total.max(1) as f64);
        let mut points = Vec::new();
        for (index, (address, connection, weight)) in (0..).zip(endpoints) {
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "at most 2^24"
            )]
            let count = ((f64::from(weight) * per_weight) as u32).max(1);
            // The first connection has the places that an endpoint with one has.
            let seed = hash(address.as_bytes()) ^ (u64::from(connection) << 48);
            points.extend((0..count).map(|point| (mix(seed ^ mix(u64::from(point))), index)));
        }
        points.sort_unstable();
        Self { points: points.into_boxed_slice() }
    }

    /// The endpoints in the order in which `key` prefers them. An endpoint comes up more than once.
    pub(super) fn preferred(&self, key: u64) -> impl Iterator<Item = u32> {
        // Mixed: keys that users count up lie side by side.
        let place = mix(key);
        let start = self.points.partition_point(|&(at, _)| at < place);
        let (before, after) = self.points.split_at(start);
        after.iter().chain(before).map(|&(_, index)| index)
    }
}

/// FNV-1a. Addresses come from the resolver, and a bad share is all that an odd one can cause.
fn hash(bytes: &[u8]) -> u64 {
    let fold = |hash: u64, &byte: &u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, fold)
}

/// The finalizer of splitmix64: every bit of the input changes half of the output.
fn mix(mut value: u64) -> u64 {
    value = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEYS: u64 = 10_000;

    fn addresses(count: usize) -> Vec<String> {
        (0..count).map(|number| format!("tcp://10.0.0.{number}:7000")).collect()
    }

    fn ring(addresses: &[String]) -> Ring {
        Ring::new(addresses.iter().map(|address| (address.as_str(), 0, 1)))
    }

    fn owner(ring: &Ring, key: u64) -> u32 {
        ring.preferred(key).next().expect("the ring has endpoints")
    }

    #[test]
    fn shares_of_equal_endpoints_are_alike() {
        let ring = ring(&addresses(10));
        let mut shares = [0_u64; 10];
        (0..KEYS).for_each(|key| shares[owner(&ring, key) as usize] += 1);
        assert!(shares.iter().all(|share| (600..1500).contains(share)), "{shares:?}");
    }

    #[test]
    fn a_weight_is_a_share() {
        let ring = Ring::new([("a", 0, 1_u16), ("b", 0, 3)].into_iter());
        let heavy = (0..KEYS).filter(|&key| owner(&ring, key) == 1).count();
        assert!((6500..8500).contains(&heavy), "{heavy}");
    }

    #[test]
    fn the_keys_of_others_stay_where_one_endpoint_goes() {
        let all = addresses(10);
        let (before, after) = (ring(&all), ring(&all[..9]));
        for key in 0..KEYS {
            let owner_before = owner(&before, key);
            if owner_before != 9 {
                assert_eq!(owner(&after, key), owner_before, "key {key}");
            }
        }
    }

    #[test]
    fn every_endpoint_comes_up_and_a_long_list_is_bounded() {
        let ring = Ring::new(addresses(300).iter().map(|address| (address.as_str(), 0, u16::MAX)));
        assert!(ring.points.len() <= 65_536 + 300);
        let mut seen: Vec<u32> = ring.preferred(7).collect();
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.len(), 300);
        assert_eq!(Ring::default().preferred(7).next(), None);
    }
    /// Clients that are updated one after the other have to agree on the owner of a key.
    #[test]
    fn places_are_those_of_the_published_functions() {
        assert_eq!(hash(b""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(hash(b"a"), 0xaf63_dc4c_8601_ec8c);
        assert_eq!(hash(b"foobar"), 0x8594_4171_f739_67e8);
        assert_eq!(mix(0), 0xe220_a839_7b1d_cdaf);
        assert_eq!(mix(1_234_567), 6_457_827_717_110_365_317);
    }
}
