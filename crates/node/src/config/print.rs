//! The configuration as text: the effective values (`config print`, valid TOML without secrets and passwords), and the reference
//! tables of `docs/configuration.md`.

use std::fmt::Write;

use super::keys::ANY_NAME;
use super::layer::{Layered, Raw};
use super::problem::Source;
use super::reader::{Entry, Reader};
use super::{Config, Layers};

/// The effective configuration as a file with the same meaning except credentials, with each key's default and source.
pub fn print(config: &Config) -> String {
    let mut text = String::new();
    let mut section = "";
    for entry in by_section(&config.entries) {
        let (its_section, name) = split(entry.key);
        if its_section != section {
            section = its_section;
            let _ = writeln!(text, "{}[{section}]", if text.is_empty() { "" } else { "\n" });
        }
        let _ = writeln!(text, "# {} {}", entry.help, about(entry));
        let from = match &entry.source {
            Source::Default => String::new(),
            source => format!("  # from {source}"),
        };
        let _ = match entry.value.is_empty() {
            true => writeln!(text, "# {name} ={from}"),
            false => writeln!(text, "{name} = {}{from}", entry.value),
        };
    }
    text
}

/// All keys as Markdown tables, one per section.
pub fn reference() -> String {
    // One provider stands for all.
    let key = format!("console.oidc.{ANY_NAME}.title");
    let layered = Layered { raw: Raw::Text(String::new()), source: Source::Default };
    let mut reader = Reader::new(Layers::from([(key, layered)]), Vec::new());
    Config::read(&mut reader);
    let mut text = String::new();
    let mut section = "";
    for entry in by_section(&reader.entries) {
        let (its_section, _) = split(entry.key);
        if its_section != section {
            section = its_section;
            let gap = if text.is_empty() { "" } else { "\n" };
            let _ =
                writeln!(text, "{gap}### `[{section}]`\n\n| key | unit | default | range | description |");
            let _ = writeln!(text, "|---|---|---|---|---|");
        }
        let default =
            if entry.default.is_empty() { "unset".to_owned() } else { format!("`{}`", entry.default) };
        let _ = writeln!(
            text,
            "| `{}` | {} | {default} | {} | {} |",
            entry.key, entry.unit, entry.range, entry.help
        );
    }
    text
}

/// Groups the keys by section, in the order of first use.
pub fn by_section(entries: &[Entry]) -> Vec<&Entry> {
    let mut sections: Vec<&str> = Vec::new();
    for entry in entries {
        let (section, _) = split(entry.key);
        if !sections.contains(&section) {
            sections.push(section);
        }
    }
    let mut sorted: Vec<&Entry> = entries.iter().collect();
    sorted.sort_by_key(|entry| sections.iter().position(|section| *section == split(entry.key).0));
    sorted
}

fn about(entry: &Entry) -> String {
    match entry.default.is_empty() {
        true => format!("({}; unset by default)", entry.unit),
        false => format!("({}, {}; default {})", entry.unit, entry.range, entry.default),
    }
}

fn split(key: &str) -> (&str, &str) {
    key.rsplit_once('.').unwrap_or(("", key))
}
