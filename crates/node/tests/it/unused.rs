//! Every dependency that a manifest names is used by the code next to it: an unused one only makes builds slower.

use std::path::{Path, PathBuf};

use crate::tidy::root;

/// The text of a file, and of those that it includes with `#[path]`.
fn text_of(path: &Path) -> String {
    let text = std::fs::read_to_string(path).expect("a file");
    let included: String = text
        .split("#[path = \"")
        .skip(1)
        .map(|rest| path.with_file_name(rest.split('"').next().expect("a path")))
        .map(|path| {
            std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
        })
        .collect();
    text + &included
}

/// The text of all Rust files below a folder; empty if there is none.
fn text_below(folder: &Path) -> String {
    let Ok(entries) = std::fs::read_dir(folder) else { return String::new() };
    let mut text = String::new();
    for path in entries.map(|entry| entry.expect("an entry").path()) {
        if path.is_dir() {
            text.push_str(&text_below(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            text.push_str(&text_of(&path));
        }
    }
    text
}

fn names_of(manifest: &toml::Table, table: &str) -> Vec<String> {
    let names = |table: &toml::Value| table.as_table().expect("a table").keys().cloned().collect();
    manifest.get(table).map(names).unwrap_or_default()
}

fn manifest_at(path: &Path) -> toml::Table {
    std::fs::read_to_string(path).expect("a manifest").parse().expect("TOML")
}

/// Whether the code has a path that starts with the crate.
fn uses(code: &str, dependency: &str) -> bool {
    let name = dependency.replace('-', "_");
    let follows = |rest: &str| rest.starts_with("::") || rest.starts_with(';') || rest.starts_with(" as ");
    let is_word = |c: char| c.is_alphanumeric() || c == '_' || c == '.';
    code.match_indices(&name).any(|(at, _)| {
        !code[..at].chars().next_back().is_some_and(is_word) && follows(&code[at + name.len()..])
    })
}

fn unused_in(folder: &Path) -> Vec<String> {
    let manifest = manifest_at(&folder.join("Cargo.toml"));
    let shipped = text_below(&folder.join("src")) + &text_below(&folder.join("examples"));
    let all = shipped.clone() + &text_below(&folder.join("tests"));
    let crate_name = folder.file_name().expect("a name").to_string_lossy();
    let unused = |table: &'static str, code: &str| -> Vec<String> {
        let names = names_of(&manifest, table);
        let names = names.into_iter().filter(|name| !uses(code, name));
        names.map(|name| format!("{crate_name}: {name} in [{table}]")).collect()
    };
    let mut found = unused("dependencies", &shipped);
    found.extend(unused("dev-dependencies", &all));
    found
}

fn crates() -> Vec<PathBuf> {
    let parents = ["crates", "tools"].map(|parent| root().join(parent));
    let entries = parents.iter().flat_map(|parent| std::fs::read_dir(parent).expect("a folder"));
    entries.map(|entry| entry.expect("an entry").path()).filter(|path| path.is_dir()).collect()
}

#[test]
fn every_dependency_is_used() {
    let mut unused: Vec<String> = crates().iter().flat_map(|folder| unused_in(folder)).collect();
    unused.sort();
    assert!(unused.is_empty(), "dependencies that no code uses:\n  {}", unused.join("\n  "));
}

#[test]
fn every_workspace_dependency_is_named_by_a_crate() {
    let tables = ["dependencies", "dev-dependencies", "build-dependencies"];
    let manifests: Vec<toml::Table> =
        crates().iter().map(|folder| manifest_at(&folder.join("Cargo.toml"))).collect();
    let named: Vec<String> = manifests
        .iter()
        .flat_map(|manifest| tables.iter().flat_map(|table| names_of(manifest, table)))
        .collect();
    let workspace = manifest_at(&root().join("Cargo.toml"));
    let workspace = workspace["workspace"].as_table().expect("a table");
    let unused: Vec<String> =
        names_of(workspace, "dependencies").into_iter().filter(|name| !named.contains(name)).collect();
    assert!(unused.is_empty(), "workspace dependencies that no crate names: {}", unused.join(", "));
}
