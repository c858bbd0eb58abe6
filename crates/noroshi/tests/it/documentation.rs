//! `docs/metrics.md` is generated from a running node and from metrics of other kinds of nodes. To regenerate:
//! `UPDATE_DOCUMENTS=1 cargo test -p noroshi --test it documentation`.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;

use crate::node::{Node, get};

#[test]
fn every_metric_is_documented() {
    let folder = tempfile::tempdir().expect("folder");
    let node = Node::start(&folder.path().join("data"));
    // A metric with labels appears once a label was used.
    node.run(&["send", "--user", "nobody", "--title", "counted"]);
    refuse_a_body(&node);
    let (status, mut scraped) = get(&node.admin, "/metrics");
    assert_eq!(status, 200);
    scraped.push_str(&noroshi_node::metrics::describe().expect("text"));

    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/metrics.md");
    let document = std::fs::read_to_string(&path).expect("docs/metrics.md");
    let mark = "<!-- written from the program; do not edit below -->\n";
    let (head, table) = document.split_once(mark).expect("the mark");
    let current = format!("\n{}", reference(&scraped));
    if std::env::var_os("UPDATE_DOCUMENTS").is_some() {
        std::fs::write(&path, format!("{head}{mark}{current}")).expect("written");
    } else {
        assert_eq!(table, current, "docs/metrics.md is outdated: see the header of this file");
    }
}

/// Announces a body above every limit.
fn refuse_a_body(node: &Node) {
    let key = std::fs::read_to_string(node.folder.join("dev.key")).expect("key");
    let address = node.http.strip_prefix("http://").expect("plain HTTP");
    let mut stream = TcpStream::connect(address).expect("the node");
    let head = format!(
        "POST /v1/notifications HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {}\r\n\
         Content-Type: application/json\r\nContent-Length: 999999999\r\nConnection: close\r\n\r\n",
        key.trim()
    );
    stream.write_all(head.as_bytes()).expect("written");
    let mut status = [0; 12];
    stream.read_exact(&mut status).expect("an answer");
    assert_eq!(&status, b"HTTP/1.1 413");
}

/// Name, type, labels and help of each metric, sorted by name.
fn reference(scraped: &str) -> String {
    let mut rows = BTreeSet::new();
    for line in scraped.lines() {
        let Some((name, help)) = line.strip_prefix("# HELP ").and_then(|rest| rest.split_once(' ')) else {
            continue;
        };
        let kind_line = format!("# TYPE {name} ");
        let kind = scraped.lines().find_map(|line| line.strip_prefix(&kind_line)).expect("a type");
        let labels = labels(scraped, name);
        rows.insert(format!("| `{name}` | {kind} | {labels} | {} |\n", help.trim_end_matches('.')));
    }
    assert!(rows.len() > 30, "only {} metrics found", rows.len());
    let mut text = String::from("| name | kind | labels | meaning |\n|---|---|---|---|\n");
    text.extend(rows);
    text
}

/// Label names of the first labelled sample, without a histogram's own.
fn labels(scraped: &str, name: &str) -> String {
    let is_own = |line: &str| {
        let rest = line.strip_prefix(name).unwrap_or_default();
        rest.starts_with('{') || rest.starts_with("_bucket{")
    };
    let sample = scraped.lines().find(|line| is_own(line));
    let inside =
        sample.and_then(|line| line.split_once('{')?.1.split_once('}')).map_or("", |(inside, _)| inside);
    let names = inside.split(',').filter_map(|label| label.split_once('=')).map(|(name, _)| name);
    let names: Vec<String> = names.filter(|name| *name != "le").map(|name| format!("`{name}`")).collect();
    names.join(", ")
}
