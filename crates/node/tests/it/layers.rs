//! Modules form layers: the graph of sibling modules has no cycle, at any level of any crate's module tree.
//!
//! An edge leads from one sibling to another where a path in the first one's subtree (`use` or inline; `crate::`, `super::`,
//! `self::`, or the name of a child) resolves into the second one's subtree. Re-exports are followed. Tests do not count, and
//! neither do paths between a module and its own children: a parent assembles them.
//!
//! For the gateway, whose layers ARCHITECTURE.md describes, the order of the layers is checked too.
//!
//! The parser reads what rustfmt writes. It knows no macros: a path that only a macro produces is not seen.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use crate::tidy::root;

/// The top-level modules of the gateway, lowest first: each names only those before it.
const GATEWAY: [&str; 11] = [
    "rate",
    "wire",
    "io",
    "config",
    "metrics",
    "session",
    "fanout",
    "protocol",
    "lifecycle",
    "shard",
    "gateway",
];

/// A module's names from the crate's root, which itself has none.
type Module = Vec<String>;

#[derive(Default)]
struct Source {
    /// A local name, and the path it refers to.
    imports: BTreeMap<String, Vec<String>>,
    paths: Vec<Vec<String>>,
}

struct Crate {
    name: String,
    modules: BTreeMap<Module, Source>,
}

/// From a module to its sibling, and one path that leads there.
type Edges = BTreeMap<(String, String), String>;

fn folders(parent: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(parent) else { return Vec::new() };
    let mut found: Vec<PathBuf> = entries.map(|entry| entry.expect("an entry").path()).collect();
    found.sort();
    found
}

fn rust_files(folder: &Path, found: &mut Vec<PathBuf>) {
    for path in folders(folder) {
        if path.is_dir() {
            rust_files(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

/// The text without comments and without items behind `#[cfg(test)]`.
fn code_of(text: &str) -> String {
    let mut code: String = String::with_capacity(text.len());
    for line in text.lines() {
        code.push_str(line.split("//").next().unwrap_or_default());
        code.push('\n');
    }
    while let Some(start) = code.find("#[cfg(test)]") {
        let rest = &code[start..];
        let open = rest.find(['{', ';']).unwrap_or(rest.len() - 1);
        let end = if rest.as_bytes()[open] == b'{' { matching_brace(rest, open) } else { open };
        code.replace_range(start..=start + end, "");
    }
    code
}

fn matching_brace(text: &str, open: usize) -> usize {
    let mut depth = 0;
    for (at, byte) in text.bytes().enumerate().skip(open) {
        match byte {
            b'{' => depth += 1,
            b'}' if depth == 1 => return at,
            b'}' => depth -= 1,
            _ => {}
        }
    }
    text.len() - 1
}

/// `a::{b, c::d as e}` becomes `a::b` (named b) and `a::c::d` (named e).
fn expand(tree: &str, prefix: &[String], found: &mut Vec<(String, Vec<String>)>) {
    let segments = |text: &str| -> Vec<String> {
        text.split("::").map(str::trim).filter(|segment| !segment.is_empty()).map(str::to_owned).collect()
    };
    let Some(open) = tree.find('{') else {
        let (path, alias) = tree.split_once(" as ").unwrap_or((tree, ""));
        let mut path = [prefix, &segments(path)].concat();
        if path.last().is_some_and(|last| last == "self") {
            path.pop();
        }
        let name = if alias.is_empty() { path.last().cloned() } else { Some(alias.trim().to_owned()) };
        if let Some(name) = name {
            found.push((name, path));
        }
        return;
    };
    let prefix = [prefix, &segments(&tree[..open])].concat();
    let (mut depth, mut start) = (0, open + 1);
    for (at, byte) in tree.bytes().enumerate().skip(open) {
        match byte {
            b'{' => depth += 1,
            b'}' => depth -= 1,
            _ => {}
        }
        if (byte == b',' && depth == 1) || (byte == b'}' && depth == 0) {
            expand(&tree[start..at], &prefix, found);
            start = at + 1;
        }
    }
}

/// The paths with at least two segments that are not part of a `use`.
fn inline_paths(code: &str) -> Vec<Vec<String>> {
    let is_path = |c: char| c.is_alphanumeric() || c == '_' || c == ':';
    let words = code.split(|c: char| !is_path(c));
    let paths = words.map(|word| word.trim_matches(':')).filter(|word| word.contains("::"));
    paths.map(|word| word.split("::").map(str::to_owned).collect()).collect()
}

fn parse(text: &str) -> Source {
    let code = code_of(text);
    let (mut imports, mut rest, mut from) = (Vec::new(), String::new(), 0);
    for (at, _) in code.match_indices("use ") {
        let line = code[..at].rfind('\n').map_or(0, |newline| newline + 1);
        let before = code[line..at].trim();
        if at < from || !(before.is_empty() || (before.starts_with("pub") && !before.contains(' '))) {
            continue;
        }
        let end = code[at..].find(';').map_or(code.len(), |end| at + end);
        rest.push_str(&code[from..line]);
        expand(&code[at + 4..end].replace('\n', " "), &[], &mut imports);
        from = end;
    }
    rest.push_str(&code[from..]);
    let mut paths: Vec<Vec<String>> = imports.iter().map(|(_, path)| path.clone()).collect();
    paths.extend(inline_paths(&rest));
    Source { imports: imports.into_iter().collect(), paths }
}

impl Crate {
    fn read(folder: &Path) -> Self {
        let source = folder.join("src");
        let mut files = Vec::new();
        rust_files(&source, &mut files);
        let mut modules = BTreeMap::new();
        for file in files {
            let relative = file.strip_prefix(&source).expect("below src").with_extension("");
            let mut module: Module =
                relative.iter().map(|part| part.to_str().expect("UTF-8").to_owned()).collect();
            if module.last().is_some_and(|last| ["lib", "main", "mod"].contains(&last.as_str())) {
                module.pop();
            }
            if !module.iter().any(|part| part == "tests") {
                modules.insert(module, parse(&std::fs::read_to_string(&file).expect("a file")));
            }
        }
        let name = folder.file_name().expect("a name").to_string_lossy().into_owned();
        Self { name, modules }
    }

    /// The path from the root, if it leads into this crate.
    fn absolute(&self, module: &[String], path: &[String]) -> Option<Module> {
        let (first, rest) = path.split_first()?;
        let parent = |module: &[String]| module[..module.len().saturating_sub(1)].to_vec();
        match first.as_str() {
            "crate" => Some(rest.to_vec()),
            "self" => Some([module, rest].concat()),
            "super" => {
                let (mut base, mut rest) = (parent(module), rest);
                while rest.first().is_some_and(|segment| segment == "super") {
                    (base, rest) = (parent(&base), &rest[1..]);
                }
                Some([base, rest.to_vec()].concat())
            }
            name => {
                let child = [module, std::slice::from_ref(first)].concat();
                if self.modules.contains_key(&child) {
                    return Some([module, path].concat());
                }
                let import = self.modules.get(module)?.imports.get(name)?;
                let is_itself = import.first() == Some(first);
                if is_itself { None } else { self.absolute(module, &[import.as_slice(), rest].concat()) }
            }
        }
    }

    /// The module that a path leads to, through re-exports.
    fn resolve(&self, path: &[String], depth: usize) -> Module {
        let mut current = Module::new();
        for (at, segment) in path.iter().enumerate() {
            let child = [current.as_slice(), std::slice::from_ref(segment)].concat();
            if self.modules.contains_key(&child) {
                current = child;
                continue;
            }
            let import = self.modules.get(&current).and_then(|source| source.imports.get(segment));
            let target = import.and_then(|import| self.absolute(&current, import));
            return match target {
                Some(target) if depth > 0 && target != path[..=at] => {
                    self.resolve(&[target.as_slice(), &path[at + 1..]].concat(), depth - 1)
                }
                _ => current,
            };
        }
        current
    }

    /// For each parent the edges between its children.
    fn edges(&self) -> BTreeMap<Module, Edges> {
        let mut levels: BTreeMap<Module, Edges> = BTreeMap::new();
        for (module, source) in &self.modules {
            for path in &source.paths {
                let Some(absolute) = self.absolute(module, path) else { continue };
                let target = self.resolve(&absolute, 8);
                let shared = module.iter().zip(&target).take_while(|(own, other)| own == other).count();
                if let (Some(from), Some(to)) = (module.get(shared), target.get(shared)) {
                    let example = format!("{} uses {}", module.join("::"), path.join("::"));
                    let level = levels.entry(module[..shared].to_vec()).or_default();
                    level.entry((from.clone(), to.clone())).or_insert(example);
                }
            }
        }
        levels
    }
}

/// Everything that can be reached from `start`.
fn reachable<'a>(edges: &'a Edges, start: &'a str) -> BTreeSet<&'a str> {
    let (mut seen, mut open) = (BTreeSet::new(), vec![start]);
    while let Some(module) = open.pop() {
        for (_, to) in edges.keys().filter(|(from, _)| from == module) {
            if seen.insert(to.as_str()) {
                open.push(to);
            }
        }
    }
    seen
}

/// The strongly connected components of more than one module.
fn cycles(edges: &Edges) -> BTreeSet<Vec<&str>> {
    let names: BTreeSet<&str> = edges.keys().flat_map(|(from, to)| [from.as_str(), to]).collect();
    let reach: BTreeMap<&str, BTreeSet<&str>> =
        names.iter().map(|name| (*name, reachable(edges, name))).collect();
    let component = |name: &&str| -> Vec<&str> {
        reach[name].iter().copied().filter(|other| reach[other].contains(name)).collect()
    };
    names.iter().map(component).filter(|component| component.len() > 1).collect()
}

/// The cycles of a crate, with the paths that close them.
fn cycles_of(of: &Crate) -> Vec<String> {
    let mut found = Vec::new();
    for (level, edges) in of.edges() {
        for cycle in cycles(&edges) {
            let inside = |name: &String| cycle.contains(&name.as_str());
            let paths: Vec<&str> = edges
                .iter()
                .filter(|((from, to), _)| inside(from) && inside(to))
                .map(|(_, example)| example.as_str())
                .collect();
            let place = [std::slice::from_ref(&of.name), &level].concat().join("::");
            found.push(format!(
                "{place}: {} modules: {}\n    {}",
                cycle.len(),
                cycle.join(" "),
                paths.join("\n    ")
            ));
        }
    }
    found
}

#[test]
fn modules_form_layers() {
    let crates: Vec<PathBuf> =
        ["crates", "tools"].iter().flat_map(|parent| folders(&root().join(parent))).collect();
    assert!(crates.len() > 15, "the workspace has more crates than {}", crates.len());
    let found: Vec<String> = crates.iter().flat_map(|folder| cycles_of(&Crate::read(folder))).collect();
    assert!(found.is_empty(), "cycles of modules:\n  {}", found.join("\n  "));
}

#[test]
fn layers_of_the_gateway_name_only_those_below() {
    let gateway = Crate::read(&root().join("crates/gateway"));
    let edges = gateway.edges().remove(&Module::new()).expect("top-level modules");
    let height = |module: &String| {
        let height = GATEWAY.iter().position(|layer| layer == module);
        height.unwrap_or_else(|| panic!("{module} has no place among the layers of the gateway"))
    };
    let upwards: Vec<&str> = edges
        .iter()
        .filter(|((from, to), _)| height(from) <= height(to))
        .map(|(_, example)| example.as_str())
        .collect();
    assert!(upwards.is_empty(), "a layer of the gateway names one above it:\n  {}", upwards.join("\n  "));
}

fn sample(files: &[(&str, &str)]) -> Crate {
    let module = |path: &str| path.split("::").filter(|part| !part.is_empty()).map(str::to_owned).collect();
    let modules = files.iter().map(|(path, text)| (module(path), parse(text))).collect();
    Crate { name: "sample".to_owned(), modules }
}

fn check(files: &[(&str, &str)], expected: &[&[&str]]) {
    let sample = sample(files);
    let levels = sample.edges();
    let found: Vec<Vec<&str>> = levels.values().flat_map(cycles).collect();
    assert_eq!(found, expected.to_vec());
}

#[test]
fn a_cycle_is_found_however_its_paths_are_written() {
    check(
        &[
            ("", "mod a; mod b; mod c; mod d;\npub use d::Deep;"),
            ("a", "use crate::b::{self, inner::Thing};"),
            ("b", "fn f() { let _ = super::c::make(); }"),
            ("b::inner", "pub struct Thing;"),
            ("c", "use crate::Deep;"),
            ("d", "use crate::{\n    a::A,\n};"),
        ],
        &[&["a", "b", "c", "d"]],
    );
}

#[test]
fn tests_comments_and_parents_close_no_cycle() {
    check(
        &[
            ("", "mod a; mod b;"),
            ("a", "mod inner;\nuse crate::b::B;\npub use inner::Inner;"),
            ("a::inner", "use super::A; // crate::b"),
            ("b", "// use crate::a::A;\n#[cfg(test)]\nmod tests {\n    use crate::a::A;\n}\n"),
        ],
        &[],
    );
}

#[test]
fn cycles_below_the_root_are_found() {
    check(
        &[
            ("", "mod a;"),
            ("a", "mod one; mod two;"),
            ("a::one", "use super::two::Two;"),
            ("a::two", "use crate::a::one;\nfn f(of: one::One) {}"),
        ],
        &[&["one", "two"]],
    );
}
