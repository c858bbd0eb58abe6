//! Words and phrases that documents and comments do not use, with what to write instead (`prose.txt`).
//!
//! `prose.txt` has a regular expression per line; case does not matter. Code blocks and inline code are not checked, nor is
//! Rust code outside comments.

use std::path::{Path, PathBuf};

use regex_lite::Regex;

use crate::tidy::root;

/// The patterns with their replacements.
fn patterns() -> Vec<(Regex, String)> {
    let lines = include_str!("prose.txt").lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines
        .map(|line| {
            let (pattern, better) =
                line.split_once(" => ").unwrap_or_else(|| panic!("no ` => ` in {line:?}"));
            (pattern_of(pattern), better.to_owned())
        })
        .collect()
}

fn pattern_of(pattern: &str) -> Regex {
    Regex::new(&format!("(?i){pattern}")).unwrap_or_else(|error| panic!("{pattern}: {error}"))
}

fn collect(folder: &Path, extensions: &[&str], found: &mut Vec<PathBuf>) {
    let skipped = ["target", "node_modules", ".venv", ".cache", ".git", "noroshi-data"];
    for entry in std::fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        let name = path.file_name().expect("a name").to_string_lossy().into_owned();
        if path.is_dir() && !skipped.contains(&name.as_str()) {
            collect(&path, extensions, found);
        } else if path.extension().is_some_and(|of| extensions.iter().any(|wanted| of == *wanted)) {
            found.push(path);
        }
    }
}

/// The prose of each line of Markdown or of Rust; code is replaced by the word `code`.
fn prose_of<'a>(text: &'a str, is_rust: bool) -> impl Iterator<Item = (usize, String)> + 'a {
    let mut is_code_block = false;
    text.lines().enumerate().map(move |(number, line)| {
        let line = match (is_rust, line.split_once("//")) {
            (true, Some((_, comment))) => comment,
            (true, None) => "",
            (false, _) => line,
        };
        let is_fence = line.trim_start_matches(['/', '!', ' ']).starts_with("```");
        is_code_block ^= is_fence;
        let mut prose = String::with_capacity(line.len());
        if !is_code_block && !is_fence {
            for (part, text) in line.split('`').enumerate() {
                prose.push_str(if part % 2 == 0 { text } else { "code" });
            }
        }
        (number + 1, prose)
    })
}

fn problems(text: &str, is_rust: bool, patterns: &[(Regex, String)]) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for (number, prose) in prose_of(text, is_rust) {
        for (pattern, better) in patterns {
            if let Some(phrase) = pattern.find(&prose) {
                found.push((number, format!("`{}`; write: {better}", phrase.as_str())));
            }
        }
    }
    found
}

#[test]
fn documents_and_comments_use_plain_words() {
    let (root, patterns) = (root(), patterns());
    let mut files = Vec::new();
    collect(&root, &["md", "rs"], &mut files);
    files.sort();
    let mut found = Vec::new();
    for file in &files {
        let text = std::fs::read_to_string(file).expect("a file");
        let name = file.strip_prefix(&root).expect("below the root").display();
        let is_rust = file.extension().is_some_and(|extension| extension == "rs");
        for (number, problem) in problems(&text, is_rust, &patterns) {
            found.push(format!("{name}:{number}: {problem}"));
        }
    }
    assert!(found.is_empty(), "see CONTRIBUTING.md on plain words:\n  {}", found.join("\n  "));
}

#[test]
fn code_is_not_prose() {
    let patterns = [(pattern_of(r"\bis foo\b"), "report".to_owned())];
    let check = |text: &str, is_rust: bool, expected: &[usize]| {
        let lines: Vec<usize> =
            problems(text, is_rust, &patterns).into_iter().map(|(number, _)| number).collect();
        assert_eq!(lines, expected, "{text}");
    };
    check("The client is foo.", false, &[1]);
    check("No\nIs Foo, ever", false, &[2]);
    check("`is foo` and this foo", false, &[]);
    check("```text\nis foo\n```\nis foo", false, &[4]);
    check("let text = \"is foo\";\n/// Is foo.\nfn f() {} // is food", true, &[2]);
}
