//! The guest's first file system: a static busybox, `init.sh` and the kernel modules, packed once
//! for each content.

use std::collections::hash_map::DefaultHasher;
use std::fs;
use std::hash::{Hash as _, Hasher as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::kernel::{Kernel, cache_folder};
use crate::{program, setup};
use anyhow::{Context as _, Result, bail};
use farcall_testkit::process::bounded;

const INIT: &str = include_str!("init.sh");

/// Kernel modules that the guest loads; modprobe orders their dependencies. Without a crc32 module
/// `rdma_rxe` refuses to make a device, with "No such file or directory". The generic one is used
/// because the emulated processor lacks the instructions of the faster one. The `sch_*` modules and
/// `dummy` serve faults on the network.
const MODULES: &[&str] = &[
    "crc32_generic",
    "crc32c_generic",
    "9pnet_virtio",
    "9p",
    "virtio_pci",
    "virtio_net",
    "virtio_console",
    "overlay",
    "veth",
    "sch_netem",
    "sch_ingress",
    "dummy",
    "rdma_rxe",
    "rdma_ucm",
    "ib_uverbs",
];

const FOLDERS: &[&str] = &["bin", "dev", "host", "lower", "modules", "proc", "sys", "upper"];

const PACK_LIMIT: Duration = Duration::from_secs(60);

/// The initramfs for `kernel`, from the cache when this content has been packed before.
///
/// # Errors
///
/// Returns an error if the kernel lacks a module, or packing fails.
pub(super) fn for_kernel(kernel: &Kernel) -> Result<PathBuf> {
    let busybox = setup::static_busybox().context("a statically linked busybox is missing")?;
    let cache = cache_folder()?;
    let hash = content_hash(&busybox)?;
    let place = cache.join(format!("initramfs-{}-{hash:016x}.gz", kernel.release));
    if place.is_file() {
        return Ok(place);
    }
    let work = tempfile::Builder::new().prefix("initramfs-").tempdir_in(&cache)?;
    let root = work.path().join("root");
    fill(&root, &busybox, &kernel.modules(MODULES)?)?;
    let packed = work.path().join("packed.gz");
    pack(&root, &packed)?;
    fs::rename(&packed, &place).with_context(|| format!("moving to {}", place.display()))?;
    Ok(place)
}

fn content_hash(busybox: &Path) -> Result<u64> {
    let mut hasher = DefaultHasher::new();
    (INIT, MODULES, FOLDERS).hash(&mut hasher);
    fs::read(busybox).with_context(|| format!("reading {}", busybox.display()))?.hash(&mut hasher);
    Ok(hasher.finish())
}

fn fill(root: &Path, busybox: &Path, modules: &[PathBuf]) -> Result<()> {
    for folder in FOLDERS {
        fs::create_dir_all(root.join(folder))?;
    }
    fs::copy(busybox, root.join("bin/busybox")).context("copying busybox")?;
    let init = root.join("init");
    fs::write(&init, INIT)?;
    fs::set_permissions(&init, fs::Permissions::from_mode(0o755))?;
    let mut order = String::new();
    for module in modules {
        let name = add_module(module, &root.join("modules"))?;
        order.push_str(&name);
        order.push('\n');
    }
    fs::write(root.join("modules/order"), order)?;
    Ok(())
}

/// Copies a module, uncompressed, and returns the name of the copy.
fn add_module(file: &Path, folder: &Path) -> Result<String> {
    let name = file.file_name().and_then(|name| name.to_str()).context("a module has no name")?;
    if name.ends_with(".ko") {
        fs::copy(file, folder.join(name)).with_context(|| format!("copying {}", file.display()))?;
        return Ok(name.to_owned());
    }
    let Some(plain) = name.strip_suffix(".xz") else {
        bail!("{} has an unknown compression", file.display());
    };
    let mut unpack = program::command("xz");
    let content = bounded::output_bytes(unpack.arg("-dc").arg(file), PACK_LIMIT)?;
    fs::write(folder.join(plain), content)?;
    Ok(plain.to_owned())
}

fn pack(root: &Path, packed: &Path) -> Result<()> {
    let script = r#"set -o pipefail; find . | sort | cpio -o -H newc --quiet | gzip -1 >"$1""#;
    let mut command = Command::new("bash");
    command.args(["-c", script, "pack"]).arg(packed).current_dir(root);
    bounded::run(&mut command, PACK_LIMIT).context("packing the initramfs")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules_are_listed_in_their_order_and_unpacked() {
        let source = tempfile::tempdir().unwrap();
        let plain = source.path().join("b.ko");
        fs::write(&plain, "plain").unwrap();
        let packed = source.path().join("a.ko");
        fs::write(&packed, "packed").unwrap();
        bounded::run(Command::new("xz").arg(&packed), PACK_LIMIT).unwrap();

        let root = source.path().join("root");
        fill(&root, &program::find("sh").unwrap(), &[plain, packed.with_extension("ko.xz")])
            .unwrap();

        assert_eq!(fs::read_to_string(root.join("modules/order")).unwrap(), "b.ko\na.ko\n");
        assert_eq!(fs::read_to_string(root.join("modules/a.ko")).unwrap(), "packed");
        assert_eq!(fs::read_to_string(root.join("init")).unwrap(), INIT);
    }

    #[test]
    fn an_unknown_compression_is_refused_by_name() {
        let folder = tempfile::tempdir().unwrap();
        let error = add_module(Path::new("/k/x.ko.zst"), folder.path()).unwrap_err();
        assert!(error.to_string().contains("/k/x.ko.zst"), "{error}");
    }
}
