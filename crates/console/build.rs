//! Embeds the files of `console/dist`, which are committed: building the program needs no npm.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs};

fn main() {
    let dist = Path::new(&env::var("CARGO_MANIFEST_DIR").expect("set by cargo")).join("../../console/dist");
    println!("cargo::rerun-if-changed={}", dist.display());
    let mut files = Vec::new();
    list(&dist, &mut files);
    files.sort();
    assert!(files.iter().any(|file| file.ends_with("index.html")), "{} has no index.html", dist.display());
    let mut table = String::from("[\n");
    for file in files {
        println!("cargo::rerun-if-changed={}", file.display());
        let name = file.strip_prefix(&dist).expect("a file of the folder").to_str().expect("UTF-8");
        writeln!(table, "    ({name:?}, include_bytes!({:?}) as &[u8]),", file.display().to_string())
            .expect("a string");
    }
    table.push(']');
    let out = PathBuf::from(env::var("OUT_DIR").expect("set by cargo")).join("assets.rs");
    fs::write(out, table).expect("the build folder is writable");
}

fn list(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).into_iter().flatten() {
        let path = entry.expect("readable").path();
        if path.is_dir() { list(&path, files) } else { files.push(path) }
    }
}
