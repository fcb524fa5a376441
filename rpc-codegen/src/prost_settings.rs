//! Settings for messages, kept until there is a prost configuration to apply them to. prost's own
//! configuration cannot be cloned, and a caller may bring one.

use std::path::PathBuf;

use prost_build::Config;

use crate::nesting::Elsewhere;

/// The builder's settings that prost implements.
#[derive(Debug, Clone, Default)]
pub(crate) struct ProstSettings {
    /// In the order of the calls, since attributes are written in it.
    pub(crate) single: Vec<ProstSetting>,
    /// Fields that are `Bytes`. prost takes them all at once, like the next two.
    pub(crate) bytes: Vec<String>,
    pub(crate) btree_map: Vec<String>,
    pub(crate) skip_debug: Vec<String>,
}

/// A setting that adds to others of its kind.
#[derive(Debug, Clone)]
pub(crate) enum ProstSetting {
    ExternPath { proto: String, rust: String },
    CompileWellKnownTypes,
    Boxed(String),
    TypeAttribute { path: String, attribute: String },
    MessageAttribute { path: String, attribute: String },
    EnumAttribute { path: String, attribute: String },
    FieldAttribute { path: String, attribute: String },
    IncludeFile(PathBuf),
}

impl ProstSettings {
    /// Adds the settings to those of `config`. `bytes`, `btree_map` and `skip_debug` replace those
    /// of `config`, if any are set here.
    pub(crate) fn apply(&self, config: &mut Config) {
        for setting in &self.single {
            setting.apply(config);
        }
        if !self.bytes.is_empty() {
            config.bytes(&self.bytes);
        }
        if !self.btree_map.is_empty() {
            config.btree_map(&self.btree_map);
        }
        if !self.skip_debug.is_empty() {
            config.skip_debug(&self.skip_debug);
        }
    }

    /// Adds the messages that these settings take from elsewhere.
    pub(crate) fn add_to(&self, elsewhere: &mut Elsewhere) {
        for setting in &self.single {
            match setting {
                ProstSetting::ExternPath { proto, .. } => {
                    elsewhere.extern_paths.push(proto.clone());
                }
                ProstSetting::CompileWellKnownTypes => elsewhere.has_own_well_known = true,
                _ => {}
            }
        }
    }

    /// Returns true if `extern_path` was called for exactly this path.
    pub(crate) fn has_extern_path(&self, path: &str) -> bool {
        self.single.iter().any(
            |setting| matches!(setting, ProstSetting::ExternPath { proto, .. } if proto == path),
        )
    }
}

impl ProstSetting {
    fn apply(&self, config: &mut Config) {
        match self {
            Self::ExternPath { proto, rust } => config.extern_path(proto, rust),
            Self::CompileWellKnownTypes => config.compile_well_known_types(),
            Self::Boxed(path) => config.boxed(path),
            Self::TypeAttribute { path, attribute } => config.type_attribute(path, attribute),
            Self::MessageAttribute { path, attribute } => config.message_attribute(path, attribute),
            Self::EnumAttribute { path, attribute } => config.enum_attribute(path, attribute),
            Self::FieldAttribute { path, attribute } => config.field_attribute(path, attribute),
            Self::IncludeFile(path) => config.include_file(path),
        };
    }
}
