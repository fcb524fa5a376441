//! What a `prost_build::Config` of the caller's says that cannot be honoured here.
//!
//! prost-build keeps its settings to itself; of some, its `Debug` tells. The tests notice when a
//! version of prost-build tells it in other words.

use prost_build::Config;

use crate::error::CodegenError;
use crate::nesting::Elsewhere;

/// What the builder does about the same things.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Builders {
    /// Whether it has a path for the descriptor set, which goes before the configuration's.
    pub(crate) has_descriptor_set_path: bool,
    /// Whether it generates services.
    pub(crate) has_services: bool,
}

/// Warnings for what has no effect.
///
/// # Errors
///
/// When a file would be missing that `config` asks for.
pub(crate) fn check(config: &Config, builder: Builders) -> Result<Vec<String>, CodegenError> {
    let told = format!("{config:?}");
    if !builder.has_descriptor_set_path && told.contains("file_descriptor_set_path: Some(") {
        return Err(CodegenError::ConfigDescriptorSetPath);
    }
    let mut warnings = Vec::new();
    if cfg!(not(feature = "protoc")) && told.contains("protoc_args: [\"") {
        warnings.push(
            "Config::protoc_arg has no effect: no protoc runs (see Builder::protoc_arg)".to_owned(),
        );
    }
    if builder.has_services && told.contains("service_generator: true") {
        warnings
            .push("Config::service_generator has no effect: the Builder has its own".to_owned());
    }
    Ok(warnings)
}

/// The messages that `config` takes from elsewhere. prost-build does not tell where it finds
/// prost-types.
pub(crate) fn elsewhere(config: &Config) -> Elsewhere {
    let told = format!("{config:?}");
    let has_own_well_known = told.contains("prost_types: false");
    let paths = told.split_once("extern_paths: [").map_or("", |(_, rest)| rest);
    let paths = paths.split_once("], default_package_filename").map_or("", |(paths, _)| paths);
    let paths = paths.split("(\"").skip(1).filter_map(|path| path.split('"').next());
    let mut extern_paths: Vec<_> = paths.map(str::to_owned).collect();
    if !has_own_well_known {
        extern_paths.push(".google.protobuf".to_owned());
    }
    Elsewhere { extern_paths, has_own_well_known }
}

/// Whether `config` says where prost is.
pub(crate) fn has_prost_path(config: &Config) -> bool {
    !format!("{config:?}").contains("prost_path: None")
}

#[cfg(test)]
mod tests {
    use prost_build::{Service, ServiceGenerator};

    use super::*;

    const PLAIN: Builders = Builders { has_descriptor_set_path: false, has_services: true };

    struct Silent;

    impl ServiceGenerator for Silent {
        fn generate(&mut self, _: Service, _: &mut String) {}
    }

    #[test]
    fn a_path_to_prost_is_seen() {
        let mut config = Config::new();
        assert!(!has_prost_path(&config));
        config.prost_path("::elsewhere::prost");
        assert!(has_prost_path(&config));
    }

    #[test]
    fn external_paths_are_seen() {
        let mut config = Config::new();
        config.extern_path(".a", "::b::a").extern_path(".c.D", "::d::D<[u8]>");
        let found = elsewhere(&config);
        assert_eq!(found.extern_paths, [".a", ".c.D", ".google.protobuf"]);
        assert!(!found.has_own_well_known);
        config.compile_well_known_types();
        let found = elsewhere(&config);
        assert_eq!(found.extern_paths, [".a", ".c.D"]);
        assert!(found.has_own_well_known);
    }

    #[test]
    fn settings_that_are_honoured_are_silent() {
        let mut config = Config::new();
        config.bytes(["."]).boxed(".a.B").include_file("mod.rs").out_dir("out");
        assert!(check(&config, PLAIN).unwrap().is_empty());
    }

    /// With the feature `protoc` the arguments have their effect.
    #[cfg(not(feature = "protoc"))]
    #[test]
    fn arguments_of_protoc_and_generators_of_services_are_warned_of() {
        let mut config = Config::new();
        config.protoc_arg("--x").service_generator(Box::new(Silent));
        let warnings = check(&config, PLAIN).unwrap();
        assert!(warnings[0].contains("protoc_arg") && warnings[1].contains("service_generator"));
        let messages_only = Builders { has_services: false, ..PLAIN };
        assert_eq!(check(&config, messages_only).unwrap().len(), 1);
    }

    #[test]
    fn a_descriptor_set_that_would_not_be_written_is_an_error() {
        let mut config = Config::new();
        config.file_descriptor_set_path("set.bin");
        let error = check(&config, PLAIN).unwrap_err().to_string();
        assert!(error.contains("Builder::file_descriptor_set_path"), "{error}");
        let builders_goes_first = Builders { has_descriptor_set_path: true, ..PLAIN };
        assert!(check(&config, builders_goes_first).unwrap().is_empty());
    }
}
