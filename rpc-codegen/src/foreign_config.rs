//! Settings of the caller's `prost_build::Config` that have no effect here.
//!
//! prost-build keeps its settings private, but its `Debug` output shows some of them. The tests
//! fail if a new version of prost-build formats them differently.

use prost_build::Config;

use crate::error::CodegenError;
use crate::nesting::Elsewhere;

/// The builder's settings that overlap with the configuration's.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Builders {
    /// True if the builder has a path for the descriptor set, which takes precedence.
    pub(crate) has_descriptor_set_path: bool,
    /// True if the builder generates services.
    pub(crate) has_services: bool,
}

/// Returns warnings for settings without effect.
///
/// # Errors
///
/// Returns an error if `config` requests a file that would not be written.
pub(crate) fn check(config: &Config, builder: Builders) -> Result<Vec<String>, CodegenError> {
    let settings = format!("{config:?}");
    if !builder.has_descriptor_set_path && settings.contains("file_descriptor_set_path: Some(") {
        return Err(CodegenError::ConfigDescriptorSetPath);
    }
    let mut warnings = Vec::new();
    if cfg!(not(feature = "protoc")) && settings.contains("protoc_args: [\"") {
        warnings.push(
            "Config::protoc_arg has no effect: no protoc runs (see Builder::protoc_arg)".to_owned(),
        );
    }
    if builder.has_services && settings.contains("service_generator: true") {
        warnings
            .push("Config::service_generator has no effect: the Builder has its own".to_owned());
    }
    Ok(warnings)
}

/// Returns the messages that `config` takes from elsewhere. prost-build does not reveal where it
/// finds prost-types.
pub(crate) fn elsewhere(config: &Config) -> Elsewhere {
    let settings = format!("{config:?}");
    let has_own_well_known = settings.contains("prost_types: false");
    let paths = settings.split_once("extern_paths: [").map_or("", |(_, rest)| rest);
    let paths = paths.split_once("], default_package_filename").map_or("", |(paths, _)| paths);
    let paths = paths.split("(\"").skip(1).filter_map(|path| path.split('"').next());
    let mut extern_paths: Vec<_> = paths.map(str::to_owned).collect();
    if !has_own_well_known {
        extern_paths.push(".google.protobuf".to_owned());
    }
    Elsewhere { extern_paths, has_own_well_known }
}

/// Returns true if `config` sets a path to prost.
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
    fn a_path_to_prost_is_found() {
        let mut config = Config::new();
        assert!(!has_prost_path(&config));
        config.prost_path("::elsewhere::prost");
        assert!(has_prost_path(&config));
    }

    #[test]
    fn external_paths_are_found() {
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

    /// The arguments work with the feature `protoc`.
    #[cfg(not(feature = "protoc"))]
    #[test]
    fn unused_protoc_arguments_and_generators_are_warned_of() {
        let mut config = Config::new();
        config.protoc_arg("--x").service_generator(Box::new(Silent));
        let warnings = check(&config, PLAIN).unwrap();
        assert!(warnings[0].contains("protoc_arg") && warnings[1].contains("service_generator"));
        let messages_only = Builders { has_services: false, ..PLAIN };
        assert_eq!(check(&config, messages_only).unwrap().len(), 1);
    }

    #[test]
    fn an_unwritten_descriptor_set_is_an_error() {
        let mut config = Config::new();
        config.file_descriptor_set_path("set.bin");
        let error = check(&config, PLAIN).unwrap_err().to_string();
        assert!(error.contains("Builder::file_descriptor_set_path"), "{error}");
        let builders_goes_first = Builders { has_descriptor_set_path: true, ..PLAIN };
        assert!(check(&config, builders_goes_first).unwrap().is_empty());
    }
}
