//! Checks that the documentation for users is complete: farcall exports every type of its public
//! signatures, and its examples compile in a crate that depends on farcall alone.
//!
//! rustdoc shows what farcall exports at farcall's own pages and links there. A link to another
//! crate of ours is a type, or a word, for which a user would have to depend on that crate.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};

/// The crates that users depend on at run time, by the names of their libraries: farcall, and those
/// beside it.
pub(super) const CRATES: &[&str] =
    &["farcall", "farcall_etcd", "farcall_service_config", "farcall_xds"];

/// The folder with a crate's pages.
pub(super) fn pages(name: &str) -> PathBuf {
    let target = std::env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into());
    Path::new(&target).join("doc").join(name)
}

/// Removes the pages, so that none is left of what is gone. rustdoc then writes all of them anew.
///
/// # Errors
///
/// Returns an error if there are some, and they cannot be removed.
pub(super) fn clear() -> Result<()> {
    for pages in CRATES.iter().map(|name| pages(name)).filter(|pages| pages.exists()) {
        std::fs::remove_dir_all(&pages).with_context(|| format!("removing {}", pages.display()))?;
    }
    Ok(())
}

/// Reads all pages.
///
/// # Errors
///
/// Returns an error if one names what farcall does not export, or there are none.
pub(super) fn check() -> Result<()> {
    // Pages of the other crates link to the crate that declares what farcall exports.
    let folder = pages("farcall");
    let (mut count, mut faults) = (0, Vec::new());
    for path in html_below(&folder)? {
        let text = std::fs::read_to_string(&path)?;
        let name = path.strip_prefix(&folder).unwrap_or(&path).display().to_string();
        faults.extend(faults_of(&text).into_iter().map(|fault| format!("{name}: {fault}")));
        count += 1;
    }
    ensure!(count > 50, "only {count} pages of documentation are in {}", folder.display());
    faults.sort();
    faults.dedup();
    ensure!(faults.is_empty(), "farcall's documentation names:\n{}", faults.join("\n"));
    println!("{count} pages of farcall name nothing that farcall does not export");
    Ok(())
}

/// Every page below a folder.
///
/// # Errors
///
/// Returns an error if the folder cannot be read.
pub(super) fn html_below(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let entries =
        std::fs::read_dir(folder).with_context(|| format!("reading {}", folder.display()))?;
    for entry in entries {
        let path = entry?.path();
        if path.is_dir() {
            found.extend(html_below(&path)?);
        } else if path.extension().is_some_and(|extension| extension == "html") {
            found.push(path);
        }
    }
    Ok(found)
}

/// The crates that users are not to depend on, by the names of their libraries.
const INNER: &[&str] = &["rpc_core", "rpc_transport_rdma", "rpc_transport_tcp"];

/// Returns the names on a page that belong to other crates of ours: targets of links except for
/// source text, and paths in examples.
fn faults_of(page: &str) -> Vec<String> {
    let links = page.split("href=\"").skip(1).filter_map(|rest| rest.split('"').next());
    let to_inner = |link: &&str| {
        let mut folders = link.split('/');
        folders.any(|folder| INNER.contains(&folder)) && !link.split('/').any(|it| it == "src")
    };
    let links = links.filter(to_inner).map(|link| format!("a link to {link}"));
    let examples = page.split("<code>").skip(1).filter_map(|rest| rest.split("</code>").next());
    let paths = examples.flat_map(|example| {
        let text = without_tags(example);
        let named = INNER.iter().filter(move |name| text.contains(&format!("{name}::")));
        named.map(|name| format!("an example with {name}"))
    });
    links.chain(paths).collect()
}

/// The text of a piece of HTML.
pub(super) fn without_tags(html: &str) -> String {
    let mut text = String::new();
    for (index, piece) in html.split('<').enumerate() {
        text.push_str(match index {
            0 => piece,
            _ => piece.split_once('>').map_or("", |(_, text)| text),
        });
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_to_other_crates_of_ours_are_found_near_and_far() {
        for link in [
            "../rpc_core/transport/struct.Addresses.html",
            "https://docs.rs/farcall-core/latest/rpc_core/enum.A.html#variant.B",
        ] {
            let page = format!("<a class=\"struct\" href=\"{link}\" title=\"a\">A</a>");
            assert_eq!(faults_of(&page), [format!("a link to {link}")]);
        }
    }

    #[test]
    fn links_to_source_text_to_farcall_and_to_others_are_none() {
        for link in ["../src/rpc_core/limits.rs.html#3", "struct.A.html", "https://docs.rs/tonic"] {
            assert!(faults_of(&format!("<a href=\"{link}\">A</a>")).is_empty(), "{link}");
        }
    }

    #[test]
    fn examples_that_users_cannot_paste_are_found() {
        let page = "<pre><code><span class=\"kw\">use </span>rpc_core::Limits;</code></pre>";
        assert_eq!(faults_of(page), ["an example with rpc_core"]);
        assert!(faults_of("<pre><code>use farcall::Limits;</code></pre>").is_empty());
    }
}
