//! The settings files that the book shows: each loads. They stand here for their files of TLS.

use std::fs;
use std::path::{Path, PathBuf};

use farcall::Settings;

use crate::authority::{Authority, Folder, named};

/// The tables that a settings file begins with.
const TABLES: [&str; 5] = ["[defaults", "[log", "[rdma", "[servers", "[targets"];

/// The pages below a folder; none where it does not exist.
fn pages(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).into_iter().flatten() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(pages(&path));
        } else if path.extension().is_some_and(|extension| extension == "md") {
            found.push(path);
        }
    }
    found
}

/// The blocks of TOML in a page, each with the number of its first line.
fn blocks(page: &str) -> Vec<(usize, String)> {
    let (mut found, mut open) = (Vec::new(), None);
    for (number, line) in (1..).zip(page.lines()) {
        match (line.trim(), &mut open) {
            ("```toml", None) => open = Some((number + 1, String::new())),
            ("```", Some(_)) => found.extend(open.take()),
            (line, Some((_, text))) => *text += &format!("{line}\n"),
            _ => {}
        }
    }
    found
}

#[test]
fn settings_files_of_the_book_load() {
    let (authority, folder) = (Authority::new(), Folder::new("book"));
    folder.write("ca.pem", &authority.pem());
    for name in ["server", "orders", "billing"] {
        let leaf = authority.issue(named("inventory"));
        folder.write(&format!("{name}.pem"), &leaf.cert);
        folder.write(&format!("{name}.key"), &leaf.key);
    }
    let book = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/book/src");
    let (mut count, mut errors) = (0, Vec::new());
    for page in pages(&book) {
        let text = fs::read_to_string(&page).unwrap();
        for (line, block) in blocks(&text) {
            if !TABLES.iter().any(|table| block.contains(table)) {
                continue;
            }
            count += 1;
            let block = block.replace("\"tls/", &format!("\"{}/", folder.path().display()));
            let origin = format!("{} from line {line} on", page.display());
            errors.extend(Settings::parse(&origin, &block).err().map(|error| error.to_string()));
        }
    }
    assert!(errors.is_empty(), "{}", errors.join("\n"));
    // A packed crate has no book.
    assert!(count > 8 || !book.exists(), "only {count} settings files were found");
}
