//! The `.proto` files inside a crate from the registry.
//!
//! Standard services (health, reflection, etcd, OpenTelemetry) publish their `.proto` files in
//! crates. A dependency on such a crate pins them in `Cargo.lock`. Under
//! `[target.'cfg(any())'.dependencies]`, a condition that is never true, cargo resolves and
//! downloads the crate but does not build it.

#[cfg(feature = "package-dir")]
mod cargo_metadata;

use std::path::PathBuf;

use crate::error::CodegenError;

/// Returns the source directory of the package `name`, a direct dependency of the package whose
/// build script or test is running.
///
/// Asks `cargo metadata`, which also downloads what a build would not need: first offline, then
/// with the network unless cargo is configured to stay offline. In a build script, also tells cargo
/// to run the script again when `Cargo.lock` changes.
///
/// ```no_run
/// let root = rpc_codegen::package_dir("etcd-client")?.join("proto");
/// let proto = root.join("etcd/api/etcdserverpb/rpc.proto");
/// rpc_codegen::configure().compile_protos(&[proto], &[root])?;
/// # Ok::<(), rpc_codegen::CodegenError>(())
/// ```
///
/// # Errors
///
/// Returns an error if `cargo metadata` fails, or if the package has no dependency of this name or
/// several. Without the feature `package-dir`, always returns an error.
pub fn package_dir(name: &str) -> Result<PathBuf, CodegenError> {
    #[cfg(feature = "package-dir")]
    {
        cargo_metadata::find_package(name)
    }
    #[cfg(not(feature = "package-dir"))]
    {
        Err(CodegenError::PackageDirFeature { name: name.to_owned() })
    }
}
