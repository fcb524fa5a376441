//! Finding the `.proto` files that a crate from the registry carries.
//!
//! Standard services (health, reflection, etcd, OpenTelemetry) publish their `.proto` files inside
//! crates. A dependency on such a crate pins them in `Cargo.lock`, and under
//! `[target.'cfg(any())'.dependencies]`, a condition that is never true, the crate is resolved and
//! downloaded but not built.

#[cfg(feature = "package-dir")]
mod cargo_metadata;

use std::path::PathBuf;

use crate::error::CodegenError;

/// The source directory of the package `name`, a direct dependency of the package whose build
/// script or test is running.
///
/// It asks `cargo metadata`, which downloads what a build would not need: first offline, then with
/// the network unless cargo is configured to stay offline. In a build script it also tells cargo to
/// run the script again when `Cargo.lock` changes.
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
/// Without the feature `package-dir` always. When `cargo metadata` fails, or when the package
/// depends on no package of that name or on several.
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
