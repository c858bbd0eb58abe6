//! Every statement that a store runs, collected while the conformance suite runs, so that a test explains each
//! (`sqlite::plans`, `postgres::plans`). A new statement is covered without further work.
//!
//! [`unseen`] compares the collection with the string literals of the source, so a statement that no test of the suite
//! runs is found too.

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::path::Path;
use std::sync::{Mutex, OnceLock, PoisonError};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

#[derive(Default)]
struct Seen {
    sqlite: Mutex<BTreeSet<String>>,
    postgres: Mutex<BTreeSet<String>>,
}

fn seen() -> &'static Seen {
    static SEEN: OnceLock<Seen> = OnceLock::new();
    SEEN.get_or_init(Seen::default)
}

/// Collects from now on. Tests that run at the same time add statements too, which does no harm.
pub(crate) fn collect() {
    static STARTED: OnceLock<()> = OnceLock::new();
    STARTED.get_or_init(|| {
        tracing::subscriber::set_global_default(Collector).expect("no other test of this program sets one");
    });
}

/// The statements of an engine until now, in order.
pub(crate) fn of(engine: &str) -> Vec<String> {
    let set = if engine == "sqlite" { &seen().sqlite } else { &seen().postgres };
    set.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect()
}

/// Receives the reports of `noroshi_store::statement`.
struct Collector;

impl Subscriber for Collector {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_event()
            && metadata.target() == "noroshi_store::statement"
            && *metadata.level() == Level::TRACE
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut report = Report::default();
        event.record(&mut report);
        let set = if report.engine == "sqlite" { &seen().sqlite } else { &seen().postgres };
        let mut set = set.lock().unwrap_or_else(PoisonError::into_inner);
        if !set.contains(&report.sql) {
            set.insert(report.sql);
        }
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

#[derive(Default)]
struct Report {
    engine: String,
    sql: String,
}

impl Visit for Report {
    fn record_str(&mut self, field: &Field, value: &str) {
        match field.name() {
            "engine" => self.engine = value.to_owned(),
            "sql" => self.sql = value.to_owned(),
            _ => {}
        }
    }

    fn record_debug(&mut self, _: &Field, _: &dyn Debug) {}
}

/// With single spaces, for comparisons and messages.
pub(crate) fn on_one_line(sql: &str) -> String {
    sql.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Fails with one line for each finding. A finding names a statement; it is excused if the statement contains the text
/// of an exception. An exception that excuses nothing is a failure too.
pub(crate) fn check(findings: &[(String, String)], exceptions: &[(&str, &str)]) {
    let mut used = BTreeSet::new();
    let mut failures = Vec::new();
    for (sql, what) in findings {
        let sql = on_one_line(sql);
        match exceptions.iter().find(|(text, _)| sql.contains(&on_one_line(text))) {
            Some((text, _)) => drop(used.insert(*text)),
            None => failures.push(format!("{what}\n    {sql}")),
        }
    }
    for (text, _) in exceptions.iter().filter(|(text, _)| !used.contains(text)) {
        failures.push(format!("this exception is no longer needed: {text}"));
    }
    assert!(failures.is_empty(), "{} findings:\n{}", failures.len(), failures.join("\n"));
}

/// Statements in the source of `folders` (below `src`) that were not collected. `{…}` in a literal stands for any
/// text.
pub(crate) fn unseen(engine: &str, folders: &[&str]) -> Vec<(String, String)> {
    let seen: Vec<String> = of(engine).iter().map(|sql| on_one_line(sql)).collect();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files = Vec::new();
    for folder in folders {
        list(&source.join(folder), &mut files);
    }
    let mut missing = Vec::new();
    for file in files {
        let text = std::fs::read_to_string(&file).expect("readable");
        let text = text.split("#[cfg(test)]\nmod tests").next().expect("split returns a part");
        for literal in literals(text).into_iter().map(|literal| on_one_line(&literal)) {
            let is_statement = ["SELECT ", "INSERT ", "UPDATE ", "DELETE ", "WITH "]
                .iter()
                .any(|verb| literal.starts_with(verb));
            let parts = parts(&literal);
            if is_statement && !seen.iter().any(|sql| contains_in_order(sql, &parts)) {
                missing.push((literal, format!("{}: no test of the suite runs", file.display())));
            }
        }
    }
    missing
}

fn list(path: &Path, files: &mut Vec<std::path::PathBuf>) {
    if path.is_file() {
        return files.push(path.to_owned());
    }
    let mut entries: Vec<_> = std::fs::read_dir(path)
        .expect("a folder of the source")
        .flatten()
        .map(|entry| entry.path())
        .collect();
    entries.sort();
    for entry in entries {
        list(&entry, files);
    }
}

fn contains_in_order(text: &str, parts: &[String]) -> bool {
    let mut rest = text;
    for part in parts {
        let Some(at) = rest.find(part.as_str()) else { return false };
        rest = &rest[at + part.len()..];
    }
    true
}

/// The text between the `{…}` of a format string.
fn parts(literal: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut rest = literal;
    while let Some(open) = rest.find('{') {
        parts.last_mut().expect("never empty").push_str(&rest[..open]);
        let close = rest[open..].find('}').map_or(rest.len(), |close| open + close + 1);
        parts.push(String::new());
        rest = &rest[close..];
    }
    parts.last_mut().expect("never empty").push_str(rest);
    parts.iter().map(|part| part.trim().to_owned()).filter(|part| !part.is_empty()).collect()
}

/// The string literals of Rust source, without comments. Raw strings do not occur in statements.
fn literals(source: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut chars = source.chars().peekable();
    while let Some(next) = chars.next() {
        match next {
            '/' if chars.peek() == Some(&'/') => drop(chars.by_ref().find(|char| *char == '\n')),
            '\'' => {
                // A character literal; a lifetime has no second quote where a literal has it.
                let mut ahead = chars.clone();
                match (ahead.next(), ahead.next()) {
                    (Some('\\'), Some(_)) => drop(chars.by_ref().skip(2).find(|char| *char == '\'')),
                    (Some(_), Some('\'')) => drop(chars.by_ref().nth(1)),
                    _ => {}
                }
            }
            '"' => {
                let mut literal = String::new();
                while let Some(char) = chars.next() {
                    match char {
                        '"' => break,
                        '\\' => match chars.next() {
                            Some('n' | '\n') => literal.push(' '),
                            Some(escaped) => literal.push(escaped),
                            None => break,
                        },
                        char => literal.push(char),
                    }
                }
                found.push(literal);
            }
            _ => {}
        }
    }
    found
}

#[test]
fn statements_are_found_in_source() {
    let source = "fn f<'a>(c: char) { // \"SELECT 0\"
 if c == '\"' || c == '\\'' { run(\"SELECT a\n   FROM \\\"b\\\"\", 'x') } }";
    assert_eq!(
        literals(source).iter().map(|sql| on_one_line(sql)).collect::<Vec<_>>(),
        ["SELECT a FROM \"b\""]
    );
    let parts = parts("SELECT {A} FROM b {lock}");
    assert!(contains_in_order("SELECT x, y FROM b FOR UPDATE", &parts));
    assert!(!contains_in_order("SELECT x FROM c", &parts));
}
