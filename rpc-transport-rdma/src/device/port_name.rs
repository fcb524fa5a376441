//! A device or one of its ports as configuration names it.

use std::str::FromStr;

use super::{DeviceError, FoundPort};

/// `mlx5_0` for any port of a device, `mlx5_0:2` for one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PortName {
    /// Name of the device.
    pub device: String,
    /// Number of the port; any if absent.
    pub port: Option<u8>,
}

impl PortName {
    /// Returns true if the name includes the port.
    pub(super) fn includes(&self, found: &FoundPort) -> bool {
        self.device == found.device && self.port.is_none_or(|port| port == found.port)
    }
}

impl FromStr for PortName {
    type Err = DeviceError;

    fn from_str(name: &str) -> Result<Self, DeviceError> {
        let invalid = || DeviceError::InvalidName { name: name.to_owned() };
        let (device, port) = match name.split_once(':') {
            None => (name, None),
            Some((device, port)) => (device, Some(port.parse().map_err(|_| invalid())?)),
        };
        let is_name = |device: &str| !device.is_empty() && !device.contains(['/', ' ']);
        if !is_name(device) || port == Some(0) {
            return Err(invalid());
        }
        Ok(Self { device: device.to_owned(), port })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_a_device_or_one_of_its_ports() {
        let name = |text: &str| text.parse::<PortName>().ok().map(|name| (name.device, name.port));
        assert_eq!(name("mlx5_0"), Some(("mlx5_0".to_owned(), None)));
        assert_eq!(name("mlx5_0:2"), Some(("mlx5_0".to_owned(), Some(2))));
        for text in ["", ":1", "mlx5_0:", "mlx5_0:0", "mlx5_0:256", "mlx5_0:1:2", "a b", "../x"] {
            assert_eq!(name(text), None, "{text:?}");
        }
    }
}
