//! Modules form layers: lower ones never name higher ones.
//!
//! In the graph of sibling modules, an edge leads from a module to each sibling that its subtree names in a `use` or a
//! path. Code for tests does not count. No cycle of that graph may have more than [`CYCLE_MODULES_MAX`] modules, at any
//! level of any crate. For the gateway, whose layers ARCHITECTURE.md describes, the order itself is checked too.
//!
//! Reads the sources as text: a path inside a macro's own syntax may be missed, but none is made up.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

const CYCLE_MODULES_MAX: usize = 4;

/// From the lowest to the highest: each names only modules before it.
const GATEWAY_LAYERS: [&str; 11] = [
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

type Module = Vec<String>;

/// A crate's modules: what each imports, by the name it has there, and all paths that it names.
#[derive(Default)]
struct Modules {
    imports: BTreeMap<Module, BTreeMap<String, Module>>,
    paths: BTreeMap<Module, Vec<Module>>,
}

/// The edges between the children of one module.
type Edges = BTreeMap<String, BTreeSet<String>>;

impl Modules {
    fn read(src: &Path) -> Self {
        let mut texts: BTreeMap<Module, String> = BTreeMap::new();
        let mut folders = vec![src.to_path_buf()];
        while let Some(folder) = folders.pop() {
            for path in
                std::fs::read_dir(&folder).expect("a folder").map(|entry| entry.expect("an entry").path())
            {
                if path.is_dir() {
                    folders.push(path);
                } else if let Some(module) = module_of(src, &path) {
                    let text = std::fs::read_to_string(&path).expect("a source");
                    texts.entry(module).or_default().push_str(&without_tests(&without_comments(&text)));
                }
            }
        }
        let mut modules = Self::default();
        let all: BTreeSet<Module> = texts.keys().cloned().collect();
        for (module, text) in texts {
            let (imports, body) = imports(&text);
            let by_name =
                |(path, name): (Module, Option<String>)| Some((name.or(path.last().cloned())?, path));
            let by_name: BTreeMap<String, Module> = imports.iter().cloned().filter_map(by_name).collect();
            let mut paths: Vec<Module> = imports.into_iter().map(|(path, _)| path).collect();
            for path in paths_in(&body) {
                let mut child = module.clone();
                child.push(path[0].clone());
                match path[0].as_str() {
                    "crate" | "self" | "super" => paths.push(path),
                    _ if all.contains(&child) => paths.push([vec!["self".to_owned()], path].concat()),
                    head => paths.extend(by_name.get(head).map(|import| [&import[..], &path[1..]].concat())),
                }
            }
            modules.imports.insert(module.clone(), by_name);
            modules.paths.insert(module, paths);
        }
        modules
    }

    fn contains(&self, module: &[String]) -> bool {
        self.paths.contains_key(module)
    }

    /// A path as it is from the crate's root; none where it leads out of the crate.
    fn absolute(&self, module: &[String], path: &[String]) -> Option<Module> {
        let (head, rest) = path.split_first()?;
        match head.as_str() {
            "crate" => Some(rest.to_vec()),
            "self" => Some([module, rest].concat()),
            "super" => {
                let above = rest.iter().take_while(|part| *part == "super").count();
                let parent = &module[..module.len().checked_sub(1 + above)?];
                Some([parent, &rest[above..]].concat())
            }
            head => {
                let child = [module, &[head.to_owned()]].concat();
                self.contains(&child).then(|| [&child, rest].concat())
            }
        }
    }

    /// The module that a path leads to, through re-exports.
    fn resolve(&self, path: &[String], depth: usize) -> Module {
        let mut module = Module::new();
        for (at, part) in path.iter().enumerate() {
            let child = [&module[..], std::slice::from_ref(part)].concat();
            if self.contains(&child) {
                module = child;
                continue;
            }
            let import = self.imports.get(&module).and_then(|imports| imports.get(part));
            let import = import.and_then(|import| self.absolute(&module, import));
            if let Some(import) = import.filter(|import| depth < 8 && import[..] != path[..=at]) {
                return self.resolve(&[&import, &path[at + 1..]].concat(), depth + 1);
            }
            break;
        }
        module
    }

    /// The edges at each level: from the first part in which a module and one that it names differ.
    fn edges(&self) -> BTreeMap<Module, Edges> {
        let mut levels: BTreeMap<Module, Edges> = BTreeMap::new();
        for (module, paths) in &self.paths {
            for path in paths.iter().filter_map(|path| self.absolute(module, path)) {
                let target = self.resolve(&path, 0);
                let common = module.iter().zip(&target).take_while(|(one, other)| one == other).count();
                if let (Some(from), Some(to)) = (module.get(common), target.get(common)) {
                    let level = levels.entry(module[..common].to_vec()).or_default();
                    level.entry(from.clone()).or_default().insert(to.clone());
                }
            }
        }
        levels
    }
}

/// The module of a source; none for tests.
fn module_of(src: &Path, path: &Path) -> Option<Module> {
    let relative = path.strip_prefix(src).ok()?.with_extension("");
    let parts = relative.components().map(|part| part.as_os_str().to_string_lossy().into_owned());
    let mut module: Module = parts.collect();
    if path.extension()? != "rs" || module.iter().any(|part| part == "tests" || part == "bin") {
        return None;
    }
    if matches!(module.last()?.as_str(), "lib" | "main" | "mod") {
        module.pop();
    }
    Some(module)
}

fn without_comments(text: &str) -> String {
    let lines = text.lines().map(|line| line.split_once("//").map_or(line, |(code, _)| code));
    lines.collect::<Vec<_>>().join("\n")
}

/// Without the items behind `#[cfg(test)]`.
fn without_tests(text: &str) -> String {
    let (mut kept, mut rest) = (String::new(), text);
    while let Some(at) = rest.find("#[cfg(test)]").or_else(|| rest.find("#[cfg(all(test")) {
        kept.push_str(&rest[..at]);
        let item = &rest[at + rest[at..].find(']').expect("an attribute ends")..];
        rest = &item[end_of_item(item)..];
    }
    kept + rest
}

/// Where the first item of a text ends.
fn end_of_item(text: &str) -> usize {
    let mut depth = 0;
    for (at, character) in text.char_indices() {
        match character {
            ';' if depth == 0 => return at + 1,
            '{' => depth += 1,
            '}' => {
                depth -= 1;
                if depth == 0 {
                    return at + 1;
                }
            }
            _ => {}
        }
    }
    text.len()
}

/// What a text imports, with the names given by `as`, and the rest of the text.
fn imports(text: &str) -> (Vec<(Module, Option<String>)>, String) {
    let (mut imports, mut body, mut tree) = (Vec::new(), String::new(), String::new());
    for line in text.lines() {
        let code = line.trim_start();
        let item = code.strip_prefix("pub").map_or(code, |item| {
            let item = item.trim_start();
            item.strip_prefix('(')
                .and_then(|item| item.split_once(')'))
                .map_or(item, |(_, item)| item)
                .trim_start()
        });
        if tree.is_empty() && !item.starts_with("use ") {
            body.push_str(line);
            body.push('\n');
            continue;
        }
        tree.push_str(if tree.is_empty() { &item["use ".len()..] } else { code });
        tree.push(' ');
        if let Some((whole, _)) = tree.split_once(';') {
            flatten(whole, &[], &mut imports);
            tree.clear();
        }
    }
    (imports, body)
}

/// The paths of a use tree.
fn flatten(tree: &str, prefix: &[String], into: &mut Vec<(Module, Option<String>)>) {
    let Some((head, list)) = tree.split_once('{') else {
        let (path, name) = tree.split_once(" as ").map_or((tree, None), |(path, name)| (path, Some(name)));
        let mut path: Module = prefix.iter().cloned().chain(parts(path)).collect();
        if path.len() > 1 && path.last().is_some_and(|last| last == "self") {
            path.pop();
        }
        if !path.is_empty() {
            into.push((path, name.map(|name| name.trim().to_owned())));
        }
        return;
    };
    let prefix: Module = prefix.iter().cloned().chain(parts(head)).collect();
    let list = &list[..list.rfind('}').unwrap_or(list.len())];
    let (mut depth, mut begin) = (0, 0);
    for (at, character) in list.char_indices() {
        match character {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                flatten(&list[begin..at], &prefix, into);
                begin = at + 1;
            }
            _ => {}
        }
    }
    if !list[begin..].trim().is_empty() {
        flatten(&list[begin..], &prefix, into);
    }
}

fn parts(path: &str) -> impl Iterator<Item = String> {
    path.split("::").map(|part| part.trim().to_owned()).filter(|part| !part.is_empty())
}

/// The paths of several parts that a text names.
fn paths_in(text: &str) -> Vec<Module> {
    let is_part = |character: char| character.is_alphanumeric() || character == '_' || character == ':';
    let words = text.split(|character| !is_part(character)).filter(|word| word.contains("::"));
    let paths = words.map(|word| {
        let parts = word.split("::").take_while(|part| !part.is_empty() && !part.contains(':'));
        parts.map(str::to_owned).collect::<Module>()
    });
    paths.filter(|path| path.len() > 1).collect()
}

/// The sets of modules that all reach each other, of more than one module.
fn cycles(edges: &Edges) -> Vec<BTreeSet<&str>> {
    let reach = |from: &str| {
        let (mut reached, mut next) = (BTreeSet::new(), vec![from.to_owned()]);
        while let Some(module) = next.pop() {
            for to in edges.get(&module).into_iter().flatten() {
                if reached.insert(to.clone()) {
                    next.push(to.clone());
                }
            }
        }
        reached
    };
    let reached: BTreeMap<&str, BTreeSet<String>> =
        edges.keys().map(|module| (module.as_str(), reach(module))).collect();
    let mut cycles: Vec<BTreeSet<&str>> = Vec::new();
    for (module, reaches) in &reached {
        let back = |other: &&str| reaches.contains(*other) && reached[*other].contains(*module);
        let cycle: BTreeSet<&str> = reached.keys().copied().filter(back).chain([*module]).collect();
        if cycle.len() > 1 && !cycles.contains(&cycle) {
            cycles.push(cycle);
        }
    }
    cycles
}

fn crates() -> Vec<(String, PathBuf)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let folders = ["crates", "tools"].map(|folder| root.join(folder));
    let entries = folders.iter().filter_map(|folder| std::fs::read_dir(folder).ok()).flatten();
    let paths = entries.map(|entry| entry.expect("an entry").path());
    let named = paths.map(|path| {
        let name = path.file_name().expect("a name").to_string_lossy().into_owned();
        (name, path.join("src"))
    });
    named.filter(|(_, src)| src.is_dir()).collect()
}

#[test]
fn cycles_of_modules_are_small() {
    let mut found = Vec::new();
    for (name, src) in crates() {
        for (level, edges) in Modules::read(&src).edges() {
            let large = cycles(&edges).into_iter().filter(|cycle| cycle.len() > CYCLE_MODULES_MAX);
            found.extend(large.map(|cycle| format!("{name}::{}: {cycle:?}", level.join("::"))));
        }
    }
    assert!(
        found.is_empty(),
        "modules in cycles of more than {CYCLE_MODULES_MAX}:\n  {}",
        found.join("\n  ")
    );
}

#[test]
fn layers_of_the_gateway_name_only_those_below() {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("../gateway/src");
    let edges = Modules::read(&src).edges().remove(&Module::new()).expect("the gateway has modules");
    let height = |module: &str| GATEWAY_LAYERS.iter().position(|layer| *layer == module);
    let mut found = Vec::new();
    for (from, targets) in &edges {
        for to in targets {
            match (height(from), height(to)) {
                (Some(from_at), Some(to_at)) if to_at < from_at => {}
                _ => found.push(format!("{from} names {to}")),
            }
        }
    }
    assert!(found.is_empty(), "the layers are {GATEWAY_LAYERS:?}, but:\n  {}", found.join("\n  "));
}

#[test]
fn paths_are_found_wherever_they_are() {
    let text = "use crate::{a::B, c as d};\npub(crate) use super::e::{\n    self, F,\n};\nfn f() { d::g(); crate::h::I::new() }\n#[cfg(test)]\nmod tests { use crate::never; }\n";
    let (imports, body) = imports(&without_tests(text));
    let shown: Vec<String> =
        imports.iter().map(|(path, name)| format!("{} {name:?}", path.join("::"))).collect();
    assert_eq!(shown, ["crate::a::B None", "crate::c Some(\"d\")", "super::e None", "super::e::F None"]);
    let paths: Vec<String> = paths_in(&body).iter().map(|path| path.join("::")).collect();
    assert_eq!(paths, ["d::g", "crate::h::I::new"]);
}

#[test]
fn a_cycle_is_found_with_all_its_modules() {
    let edge = |from: &str, to: &[&str]| (from.to_owned(), to.iter().map(|to| (*to).to_owned()).collect());
    let edges: Edges = [edge("a", &["b"]), edge("b", &["c"]), edge("c", &["a", "d"]), edge("d", &[])].into();
    assert_eq!(cycles(&edges), [BTreeSet::from(["a", "b", "c"])]);
}
