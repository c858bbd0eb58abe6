//! Compresses the debug information of release builds with zlib, which `backtrace` and debuggers read: line tables are most
//! of the file. Other profiles have none, or are for tests, where linking should be fast.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    let set = |name: &str| std::env::var(name).unwrap_or_default();
    if set("CARGO_CFG_TARGET_OS") == "linux" && set("PROFILE") == "release" && set("DEBUG") != "false" {
        println!("cargo:rustc-link-arg-bins=-Wl,--compress-debug-sections=zlib");
    }
}
