//! The house rules that a machine can check: who may know whom, a header on every file, no clock in
//! the pure crates, no file outside the module tree, no dependency that needs OpenSSL or cmake.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

pub(crate) fn root() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    root.canonicalize().expect("the workspace")
}

/// The folders that hold the workspace's crates: `crates` is what ships, `tools` measures, simulates and fakes.
const CRATE_FOLDERS: [&str; 2] = ["crates", "tools"];

/// Every `.rs` file of the workspace's crates.
fn sources() -> Vec<PathBuf> {
    let mut files = Vec::new();
    let mut folders: Vec<PathBuf> = CRATE_FOLDERS.iter().map(|folder| root().join(folder)).collect();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).expect("folder").map(|entry| entry.expect("entry").path()) {
            match entry.is_dir() {
                true => folders.push(entry),
                false if entry.extension().is_some_and(|extension| extension == "rs") => files.push(entry),
                false => {}
            }
        }
    }
    assert!(files.len() > 50, "the workspace has more files than {}", files.len());
    files.sort();
    files
}

fn shown(path: &Path) -> String {
    path.strip_prefix(root()).unwrap_or(path).display().to_string()
}

fn assert_none(what: &str, found: &[String]) {
    assert!(found.is_empty(), "{what}:\n  {}", found.join("\n  "));
}

/// The `[dependencies]` of each of our crates.
fn dependencies() -> BTreeMap<String, BTreeSet<String>> {
    let folders =
        CRATE_FOLDERS.iter().flat_map(|folder| std::fs::read_dir(root().join(folder)).expect("folder"));
    let manifests = folders.map(|entry| entry.expect("entry").path().join("Cargo.toml"));
    manifests.map(|path| normal_dependencies(&path)).collect()
}

fn normal_dependencies(manifest: &Path) -> (String, BTreeSet<String>) {
    let text = std::fs::read_to_string(manifest).expect("a manifest");
    let manifest: toml::Table = text.parse().expect("TOML");
    let name = manifest["package"]["name"].as_str().expect("a name").to_owned();
    let names = |table: &toml::Value| table.as_table().expect("a table").keys().cloned().collect();
    (name, manifest.get("dependencies").map(names).unwrap_or_default())
}

#[test]
fn crates_know_only_those_before_them() {
    let may_know: BTreeMap<&str, &[&str]> = BTreeMap::from([
        ("noroshi-types", &[][..]),
        ("noroshi-supervision", &[]),
        ("noroshi-protocol", &["types"][..]),
        ("noroshi-telemetry", &["types"]),
        ("noroshi-store", &["types", "supervision", "telemetry"]),
        ("noroshi-cluster", &["types", "telemetry"]),
        ("noroshi-egress", &["types"]),
        ("noroshi-sqs", &["telemetry", "egress", "cluster"]),
        ("noroshi-events", &["types", "supervision", "egress"]),
        ("noroshi-otel", &["types", "telemetry", "egress"]),
        ("noroshi-profiling", &["egress"]),
        ("noroshi-push", &["types", "telemetry", "protocol", "egress"]),
        ("noroshi-testkit", &["types"]),
        ("noroshi-auth", &["types", "supervision", "telemetry", "store", "egress"]),
        ("noroshi-console", &["types", "store", "auth", "egress"]),
        (
            "noroshi-delivery",
            &[
                "types",
                "supervision",
                "telemetry",
                "events",
                "protocol",
                "egress",
                "store",
                "push",
                "cluster",
            ],
        ),
        ("noroshi-series", &["types", "telemetry", "store", "cluster", "delivery"]),
        ("noroshi-tail", &["types", "supervision", "telemetry", "events", "store", "cluster", "delivery"]),
        (
            "noroshi-api",
            &[
                "types",
                "supervision",
                "telemetry",
                "events",
                "profiling",
                "protocol",
                "store",
                "auth",
                "console",
                "push",
                "delivery",
                "series",
                "tail",
            ],
        ),
        ("noroshi-cells", &["types", "telemetry", "store", "auth", "egress", "api"]),
        (
            "noroshi-gateway",
            &[
                "types",
                "supervision",
                "telemetry",
                "events",
                "protocol",
                "store",
                "cluster",
                "auth",
                "delivery",
            ],
        ),
        (
            "noroshi-node",
            &[
                "types",
                "supervision",
                "telemetry",
                "events",
                "otel",
                "profiling",
                "protocol",
                "egress",
                "push",
                "store",
                "cluster",
                "sqs",
                "auth",
                "console",
                "delivery",
                "series",
                "tail",
                "api",
                "cells",
                "gateway",
            ],
        ),
        ("noroshi-load", &["types", "telemetry", "events", "protocol", "egress", "push", "testkit"]),
        ("noroshi-sim", &[]),
        ("noroshi", &["types", "profiling", "node", "load", "sim", "testkit", "client"]),
    ]);
    let mut wrong = Vec::new();
    for (name, dependencies) in dependencies() {
        let Some(allowed) = may_know.get(name.as_str()) else {
            wrong.push(format!("{name} has no place in this table"));
            continue;
        };
        for other in dependencies.iter().filter_map(|dependency| dependency.strip_prefix("noroshi-")) {
            if !allowed.contains(&other) {
                wrong.push(format!("{name} must not know noroshi-{other}"));
            }
        }
    }
    assert_none("dependencies against the direction", &wrong);
}

#[test]
fn pure_crates_do_no_io_and_ask_no_clock() {
    let dependencies = dependencies();
    for name in ["noroshi-types", "noroshi-protocol"] {
        for banned in ["tokio", "mio", "socket2", "hyper", "rand"] {
            assert!(!dependencies[name].contains(banned), "{name} must not depend on {banned}");
        }
    }
    let mut wrong = Vec::new();
    for path in sources() {
        let name = shown(&path);
        if !name.starts_with("crates/types/src") && !name.starts_with("crates/protocol/src") {
            continue;
        }
        let text = std::fs::read_to_string(&path).expect("source");
        for banned in ["Instant::now", "SystemTime::now", "std::net", "std::fs", "rand::", "thread_rng"] {
            if text.contains(banned) {
                wrong.push(format!("{name}: {banned}"));
            }
        }
    }
    assert_none("clock, IO or randomness in a pure crate", &wrong);
}

#[test]
fn every_file_says_what_it_is() {
    let mut wrong = Vec::new();
    for path in sources() {
        let text = std::fs::read_to_string(&path).expect("source");
        if !text.starts_with("//! ") {
            wrong.push(shown(&path));
        }
    }
    assert_none("no //! header", &wrong);
}

#[test]
fn what_is_to_be_done_has_a_link() {
    let marks = [concat!("TO", "DO"), concat!("FIX", "ME"), concat!("XX", "X")];
    let mut wrong = Vec::new();
    for path in sources() {
        let text = std::fs::read_to_string(&path).expect("source");
        for (i, line) in text.lines().enumerate() {
            if marks.iter().any(|mark| line.contains(mark)) && !line.contains("http") {
                wrong.push(format!("{}:{}", shown(&path), i + 1));
            }
        }
    }
    assert_none("a note of work to be done without a link", &wrong);
}

/// Follows `mod name;` from each crate's roots; other files are dead.
#[test]
fn every_file_is_in_the_module_tree() {
    let files = sources();
    let mut reached = BTreeSet::new();
    let mut open: Vec<PathBuf> = files.iter().filter(|path| is_root(path)).cloned().collect();
    while let Some(path) = open.pop() {
        if !reached.insert(path.clone()) {
            continue;
        }
        let text = std::fs::read_to_string(&path).expect("source");
        for name in text.lines().filter_map(module_name) {
            open.extend(places(&path, name).into_iter().filter(|place| files.contains(place)));
        }
    }
    let lost: Vec<String> =
        files.iter().filter(|path| !reached.contains(*path)).map(|path| shown(path)).collect();
    assert_none("outside the module tree", &lost);
}

fn is_root(path: &Path) -> bool {
    let name = shown(path);
    let parts: Vec<&str> = name.split('/').collect();
    matches!(
        parts.get(2..).unwrap_or_default(),
        ["build.rs"]
            | ["src", "lib.rs" | "main.rs"]
            | ["src", "bin", _]
            | ["tests" | "benches" | "examples", _]
            | ["tests" | "benches" | "examples", _, "main.rs"]
    )
}

fn module_name(line: &str) -> Option<&str> {
    let declaration = line.trim_start();
    let rest = match declaration.strip_prefix("pub") {
        Some(rest) => rest.trim_start_matches(|c| c != ' ').trim_start(),
        None => declaration,
    };
    rest.strip_prefix("mod ")?.split_once(';').map(|(name, _)| name.trim())
}

fn places(path: &Path, name: &str) -> [PathBuf; 2] {
    let stem = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
    let folder = path.parent().expect("a file has a folder");
    let folder = match stem {
        "lib" | "main" | "mod" => folder.to_owned(),
        _ => folder.join(stem),
    };
    [folder.join(format!("{name}.rs")), folder.join(name).join("mod.rs")]
}

/// Faults are injected where debug assertions are on, which releases do not have.
#[test]
fn no_release_injects_faults() {
    let manifest = std::fs::read_to_string(root().join("Cargo.toml")).expect("Cargo.toml");
    let release = manifest.split_once("[profile.release]").expect("a profile").1;
    let release = release.split("\n[").next().expect("its lines");
    assert!(!release.contains("debug-assertions"), "{release}");
    let mut wrong = Vec::new();
    for path in sources() {
        let text = std::fs::read_to_string(&path).expect("source");
        let lines: Vec<&str> = text.lines().collect();
        let is_fault_file = shown(&path) == "crates/supervision/src/fault.rs";
        if is_fault_file || !shown(&path).contains("/src/") {
            continue;
        }
        for (at, line) in lines.iter().enumerate() {
            // Not `Default::`.
            let is_name = |(at, _): (usize, &str)| !line[..at].ends_with(char::is_alphanumeric);
            let uses = line.match_indices("fault::").any(is_name) && !line.trim_start().starts_with("//");
            // The module is compiled out otherwise, so what compiles uses it below such a line.
            let is_debug = lines[..at].iter().any(|line| line.trim() == "#[cfg(debug_assertions)]");
            if uses && !is_debug {
                wrong.push(format!("{}:{}", shown(&path), at + 1));
            }
        }
    }
    let lib = std::fs::read_to_string(root().join("crates/supervision/src/lib.rs")).expect("source");
    assert!(lib.contains("#[cfg(debug_assertions)]\npub mod fault;"), "the module is for debug builds alone");
    assert_none("faults outside debug builds", &wrong);
}

#[test]
fn no_dependency_forces_openssl_or_cmake() {
    let lock = std::fs::read_to_string(root().join("Cargo.lock")).expect("Cargo.lock");
    for banned in ["aws-lc-sys", "aws-lc-rs", "openssl-sys", "native-tls", "cmake"] {
        assert!(!lock.contains(&format!("name = \"{banned}\"")), "{banned} is in Cargo.lock");
    }
}
