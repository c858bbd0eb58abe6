//! Documents generated from the program. To regenerate them:
//! `UPDATE_DOCUMENTS=1 cargo test -p noroshi-node documentation`.

use std::path::PathBuf;

#[test]
fn the_reference_of_the_configuration_is_current() {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/configuration.md");
    let document = std::fs::read_to_string(&path).expect("docs/configuration.md");
    let mark = "<!-- written from the program; do not edit below -->\n";
    let (head, table) = document.split_once(mark).expect("the mark");
    let reference = format!("\n{}", noroshi_node::config::reference());
    if std::env::var_os("UPDATE_DOCUMENTS").is_some() {
        std::fs::write(&path, format!("{head}{mark}{reference}")).expect("written");
    } else {
        assert_eq!(table, reference, "docs/configuration.md is old: see the head of this file");
    }
}
