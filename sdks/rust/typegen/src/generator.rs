//! Types of schemas, as source code.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::fmt::Write;

use serde_json::Value;

use crate::document::{Document, Operation, Schema};
use crate::names::{field, of_enum, of_schema, renamed, singular, upper_camel};

/// What to write.
#[derive(Debug, Default)]
pub(crate) struct Selection {
    pub(crate) security: String,
    pub(crate) requests: Vec<String>,
    pub(crate) responses: Vec<String>,
    pub(crate) omit: Vec<String>,
    /// Schemas whose types are written by hand.
    pub(crate) imports: Vec<String>,
    /// Also write structs for the query parameters of lists.
    pub(crate) queries: bool,
    /// Codes of the library, in addition to those of `Problem`.
    pub(crate) codes: Vec<String>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Uses {
    in_requests: bool,
    in_responses: bool,
}

pub(crate) struct Generator<'a> {
    document: &'a Document,
    selection: &'a Selection,
    uses: HashMap<String, Uses>,
    /// Declared types.
    names: BTreeSet<String>,
    /// Names of enums by their sorted values.
    enums: HashMap<String, String>,
    out: String,
    enum_source: String,
    needs_patch: bool,
}

/// How a field is written.
struct Field {
    name: String,
    key: String,
    doc: String,
    kind: String,
    form: Form,
    /// For serde: a module, or nothing.
    with: &'static str,
    /// Whether `Default` gives a value for an answer without the field: one of an older version of the service.
    has_default: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    Required,
    /// Required, and may be null.
    Nullable,
    Optional,
    /// A list or a map of a response: empty if absent.
    Defaulted,
    Patch,
}

impl<'a> Generator<'a> {
    pub(crate) fn new(document: &'a Document, selection: &'a Selection) -> Self {
        let mut generator = Self {
            document,
            selection,
            uses: HashMap::new(),
            names: BTreeSet::new(),
            enums: HashMap::new(),
            out: String::new(),
            enum_source: String::new(),
            needs_patch: false,
        };
        generator.find_uses();
        generator
    }

    fn operations(&self) -> impl Iterator<Item = (&'a str, &'a str, &'a Operation)> + use<'a> {
        let security = self.selection.security.clone();
        let all = self.document.paths.0.iter().flat_map(|(path, operations)| {
            operations.0.iter().map(move |(method, operation)| (path.as_str(), method.as_str(), operation))
        });
        all.filter(move |(_, _, operation)| operation.security.iter().any(|one| one.contains_key(&security)))
    }

    fn find_uses(&mut self) {
        for (_, _, operation) in self.operations() {
            for body in operation.request_body.content.values() {
                self.use_schema(&body.schema, Uses { in_requests: true, in_responses: false });
            }
            for (_, response) in operation.responses.iter().filter(|(status, _)| status.starts_with('2')) {
                for body in response.content.values() {
                    self.use_schema(&body.schema, Uses { in_requests: false, in_responses: true });
                }
            }
        }
        for name in &self.selection.requests {
            self.use_name(name, Uses { in_requests: true, in_responses: false });
        }
        for name in &self.selection.responses {
            self.use_name(name, Uses { in_requests: false, in_responses: true });
        }
    }

    fn use_name(&mut self, name: &str, uses: Uses) {
        let known = self.uses.entry(name.to_owned()).or_default();
        let is_new = uses.in_requests && !known.in_requests || uses.in_responses && !known.in_responses;
        known.in_requests |= uses.in_requests;
        known.in_responses |= uses.in_responses;
        if is_new {
            let document = self.document;
            if let Some(schema) = document.components.schemas.get(name) {
                self.use_schema(schema, uses);
            }
        }
    }

    fn use_schema(&mut self, schema: &Schema, uses: Uses) {
        if let Some(name) = schema.target() {
            self.use_name(name, uses);
            return;
        }
        for (key, property) in &schema.properties.0 {
            let (bare, _) = property.without_null();
            if let Some(same) = self.same_as(&bare.description, key) {
                self.use_schema(same, uses);
            }
        }
        let properties = schema.properties.0.iter().map(|(_, property)| property);
        let parts = schema.one_of.iter().chain(&schema.any_of);
        for part in properties.chain(parts).chain(schema.items.as_deref()).chain(schema.elements()) {
            self.use_schema(part, uses);
        }
    }

    /// The property of another schema to which a description refers.
    fn same_as(&self, description: &str, key: &str) -> Option<&'a Schema> {
        let other = description.strip_prefix("As in `")?.strip_suffix("`.")?;
        self.document.components.schemas.get(other)?.properties.get(key)
    }

    pub(crate) fn file(mut self) -> Result<String, String> {
        let document = self.document;
        for name in self.selection.requests.iter().chain(&self.selection.responses) {
            document.components.schemas.get(name).ok_or_else(|| format!("there is no schema {name}"))?;
        }
        let omitted: HashSet<&str> =
            self.selection.omit.iter().chain(&self.selection.imports).map(String::as_str).collect();
        // Inline objects must not take the names of schemas.
        let used: Vec<(&str, &Schema)> = document
            .components
            .schemas
            .0
            .iter()
            .map(|(name, schema)| (name.as_str(), schema))
            .filter(|(name, _)| {
                self.uses.contains_key(*name) && *name != "Duration" && !omitted.contains(name)
            })
            .collect();
        self.names.extend(used.iter().map(|(name, _)| of_schema(name).to_owned()));
        self.names.insert("Code".to_owned());
        for (name, schema) in used {
            let uses = self.uses[name];
            self.declare(of_schema(name), schema, uses)?;
        }
        if self.selection.queries {
            self.queries()?;
        }
        self.codes()?;
        let mut head = String::from(
            "// Generated by typegen from crates/api/openapi.json. Do not edit.\n\n\
             #![allow(missing_docs, reason = \"fields without a comment have none in openapi.json\")]\n\n",
        );
        let body = format!("\n{}{}", self.out, self.enum_source);
        let mut imports = Vec::new();
        if body.contains("BTreeMap<") {
            imports.push("use std::collections::BTreeMap;");
        }
        match (body.contains("Duration"), body.contains("SystemTime")) {
            (true, true) => imports.push("use std::time::{Duration, SystemTime};"),
            (true, false) => imports.push("use std::time::Duration;"),
            (false, true) => imports.push("use std::time::SystemTime;"),
            (false, false) => {}
        }
        let mut serde = Vec::new();
        for (name, is_used) in [
            ("Deserialize", body.contains("Deserialize")),
            ("Deserializer", body.contains("Deserializer<")),
            ("Serialize", body.contains("Serialize") || self.needs_patch),
            ("Serializer", body.contains("Serializer>") || self.needs_patch),
        ] {
            if is_used {
                serde.push(name);
            }
        }
        let serde = format!("use serde::{{{}}};", serde.join(", "));
        imports.push(&serde);
        match (body.contains("Map<String, Value>>") || body.contains(" Map<"), body.contains("Value")) {
            (true, _) => imports.push("use serde_json::{Map, Value};"),
            (false, true) => imports.push("use serde_json::Value;"),
            (false, false) => {}
        }
        imports.push("use crate::open_enum::open_enum;");
        // Each crate has a module for times on the wire.
        match (body.contains("\"duration"), body.contains("\"timestamp") || body.contains("timestamp::")) {
            (true, true) => imports.push("use crate::wire::{duration, timestamp};"),
            (true, false) => imports.push("use crate::wire::duration;"),
            (false, true) => imports.push("use crate::wire::timestamp;"),
            (false, false) => {}
        }
        let by_hand: Vec<String> =
            self.selection.imports.iter().map(|name| format!("use crate::{name};")).collect();
        imports.extend(by_hand.iter().map(String::as_str));
        head += &imports.join("\n");
        head += "\n";
        if self.needs_patch {
            head += include_str!("support.rs.txt");
        }
        Ok(head + &body)
    }

    fn declare(&mut self, name: &str, schema: &Schema, uses: Uses) -> Result<(), String> {
        let (schema, _) = schema.without_null();
        if !schema.values.is_empty() {
            self.open_enum(name, &schema);
        } else if schema.is_union_of_objects() {
            self.union_of_objects(name, &schema, uses)?;
        } else if !schema.properties.0.is_empty() {
            self.structure(name, &schema, uses)?;
        } else {
            return Err(format!("{name} is neither an object nor an enum"));
        }
        Ok(())
    }

    fn union_of_objects(&mut self, name: &str, schema: &Schema, uses: Uses) -> Result<(), String> {
        let mut text = doc(&described(&schema.description), "");
        let derives = derives(uses);
        if schema.one_of.iter().all(|part| part.properties.0.len() == 1) {
            let _ = write!(
                text,
                "#[derive({derives})]\n#[non_exhaustive]\n#[serde(rename_all = \"snake_case\")]\npub enum {name} {{\n"
            );
            for part in &schema.one_of {
                let (key, property) = &part.properties.0[0];
                let kind = self.plain(&format!("{name}{}", upper_camel(key)), property, uses)?.0;
                text += &doc(&property.description, "    ");
                if kind == "bool" {
                    text += "    /// Always `true`.\n";
                }
                let _ = writeln!(text, "    {}({kind}),", upper_camel(key));
            }
        } else {
            let is_tag = |key: &str| {
                schema
                    .one_of
                    .iter()
                    .all(|part| part.properties.get(key).is_some_and(|p| p.constant.is_some()))
            };
            let tag = schema.one_of[0].properties.0.iter().find(|(key, _)| is_tag(key));
            let (tag, _) = tag.ok_or_else(|| format!("the union {name} has no discriminator"))?;
            let _ = write!(
                text,
                "#[derive({derives})]\n#[non_exhaustive]\n#[serde(tag = \"{tag}\")]\npub enum {name} {{\n"
            );
            for part in &schema.one_of {
                let value =
                    part.properties.get(tag).and_then(|p| p.constant.as_ref()).and_then(Value::as_str);
                let value = value.ok_or_else(|| format!("a discriminator of {name} is not a text"))?;
                let _ = writeln!(text, "    #[serde(rename = \"{value}\")]\n    {} {{", upper_camel(value));
                for (key, property) in part.properties.0.iter().filter(|(key, _)| key != tag) {
                    let field = self.field(name, part, key, property, uses, "")?;
                    write_field(&mut text, &field, uses, "        ", "");
                }
                text += "    },\n";
            }
            if uses.in_responses {
                text += "    /// Of a later version of the service.\n    #[serde(other)]\n    Unknown,\n";
            }
        }
        text += "}\n\n";
        self.out += &text;
        Ok(())
    }

    fn structure(&mut self, name: &str, schema: &Schema, uses: Uses) -> Result<(), String> {
        let start = self.out.len();
        let mut fields = Vec::new();
        for (key, property) in &schema.properties.0 {
            fields.push(self.field(name, schema, key, property, uses, &schema.description)?);
        }
        let inner = self.out.split_off(start);
        let has_required = fields.iter().any(|one| matches!(one.form, Form::Required | Form::Nullable));
        let has_default = fields
            .iter()
            .all(|one| one.form != Form::Required || one.has_default && one.kind != "SystemTime");
        let default = if has_default && (uses.in_responses || !has_required) { ", Default" } else { "" };
        let mut text = doc(&described(&schema.description), "");
        let _ =
            write!(text, "#[derive({}{default})]\n#[non_exhaustive]\npub struct {name} {{\n", derives(uses));
        for one in &fields {
            write_field(&mut text, one, uses, "    ", "pub ");
        }
        text += "}\n\n";
        if uses.in_requests {
            text += &constructor(name, &fields, has_required);
        }
        self.out += &text;
        self.out += &inner;
        Ok(())
    }

    fn field(
        &mut self,
        owner: &str,
        schema: &Schema,
        key: &str,
        property: &Schema,
        uses: Uses,
        description: &str,
    ) -> Result<Field, String> {
        let (mut bare, is_nullable) = property.without_null();
        if let Some(same) = self.same_as(&bare.description, key) {
            bare = same.without_null().0;
        }
        let is_required = schema.required.iter().any(|name| name == key);
        let is_list = bare.items.is_some() || bare.elements().is_some();
        let type_name = renamed(format!("{owner}{}", singular(upper_camel(key), is_list)));
        let (kind, with) = self.plain(&type_name, &bare, uses)?;
        let clears = ["null clears", "null removes"].iter().any(|text| description.contains(text));
        let is_collection = kind.starts_with("Vec<") || kind.starts_with("BTreeMap<");
        let form = match (is_required, is_nullable) {
            (_, true) if clears => Form::Patch,
            (true, true) => Form::Nullable,
            (_, false) if is_collection && !uses.in_requests => Form::Defaulted,
            (true, false) => Form::Required,
            (false, _) => Form::Optional,
        };
        self.needs_patch |= form == Form::Patch;
        if form == Form::Patch && uses.in_responses {
            return Err(format!("{owner}.{key} is a Patch in a response"));
        }
        let text = match property.description.is_empty() {
            true => &bare.description,
            false => &property.description,
        };
        let doc = if text == "RFC 3339, UTC." { String::new() } else { text.clone() };
        let has_default = self.has_default(&bare);
        Ok(Field { name: field(key), key: key.to_owned(), doc, kind, form, with, has_default })
    }

    /// The type of a value that is neither null nor absent, and its serde module. Inline objects and enums get `type_name`.
    fn plain(
        &mut self,
        type_name: &str,
        schema: &Schema,
        uses: Uses,
    ) -> Result<(String, &'static str), String> {
        let (schema, _) = schema.without_null();
        let simple = |kind: &str| Ok((kind.to_owned(), ""));
        if let Some(name) = schema.target() {
            return match name {
                "Duration" => Ok(("Duration".to_owned(), "duration")),
                _ => simple(of_schema(name)),
            };
        }
        if !schema.texts().is_empty() {
            return simple(&self.open_enum(type_name, &schema));
        }
        if !schema.properties.0.is_empty() || schema.is_union_of_objects() {
            if self.document.components.schemas.get(type_name).is_some() {
                return Err(format!("an inline object has the name of the schema {type_name}"));
            }
            if self.names.insert(type_name.to_owned()) {
                self.declare(type_name, &schema, uses)?;
            }
            return simple(type_name);
        }
        if !schema.any_of.is_empty() {
            if schema.any_of.iter().all(|part| part.is("string") || part.is("integer")) {
                return Ok(("Duration".to_owned(), "duration")); // written in place
            }
            if self.names.insert(type_name.to_owned()) {
                self.choice(type_name, &schema, uses)?;
            }
            return simple(type_name);
        }
        match schema.types.0.first().map_or("", String::as_str) {
            "string" if schema.format.as_deref() == Some("date-time") => {
                Ok(("SystemTime".to_owned(), "timestamp"))
            }
            "string" => simple("String"),
            "integer" if schema.minimum.is_some_and(|least| least >= 0.0) => simple("u64"),
            "integer" => simple("i64"),
            "number" => simple("f64"),
            "boolean" => simple("bool"),
            "array" => {
                let items = schema.items.as_deref().ok_or_else(|| format!("{type_name} has no items"))?;
                self.collection("Vec<", type_name, items, uses)
            }
            "object" => match schema.elements() {
                Some(elements) => self.collection("BTreeMap<String, ", type_name, elements, uses),
                None => simple("Map<String, Value>"),
            },
            _ => match &schema.constant {
                Some(Value::Bool(_)) => simple("bool"),
                Some(Value::String(_)) => simple("String"),
                _ => simple("Value"),
            },
        }
    }

    fn has_default(&self, schema: &Schema) -> bool {
        let (schema, is_nullable) = schema.without_null();
        if is_nullable {
            return true;
        }
        if let Some(name) = schema.target() {
            let target = self.document.components.schemas.get(name);
            return name == "Duration" || target.is_some_and(|target| self.has_default(target));
        }
        if schema.is_union_of_objects() || !schema.any_of.is_empty() {
            return false;
        }
        schema.properties.0.iter().filter(|(key, _)| schema.required.contains(key)).all(|(_, property)| {
            property.format.as_deref() != Some("date-time") && self.has_default(property)
        })
    }

    fn collection(
        &mut self,
        begin: &str,
        type_name: &str,
        element: &Schema,
        uses: Uses,
    ) -> Result<(String, &'static str), String> {
        let (bare, is_nullable) = element.without_null();
        let (kind, with) = self.plain(type_name, &bare, uses)?;
        if !with.is_empty() {
            return Err(format!("{type_name} is a list of times"));
        }
        let kind = if is_nullable { format!("Option<{kind}>") } else { kind };
        Ok((format!("{begin}{kind}>"), ""))
    }

    /// A union of different types, such as a number and a word.
    fn choice(&mut self, name: &str, schema: &Schema, uses: Uses) -> Result<(), String> {
        let mut text = doc(&described(&schema.description), "");
        let words: Vec<&str> =
            schema.any_of.iter().filter_map(|part| part.constant.as_ref()?.as_str()).collect();
        if let [word] = words[..] {
            // serde has no attribute for a variant that is a certain text.
            let template = include_str!("number_or_word.rs.txt");
            let (write, read) = template.split_once("// In responses:\n").unwrap_or((template, ""));
            let source = if uses.in_responses { write.to_owned() + read } else { write.to_owned() };
            text +=
                &source.replace("NAME", name).replace("WORD", word).replace("VARIANT", &upper_camel(word));
            self.out += &text;
            return Ok(());
        }
        let _ = write!(
            text,
            "#[derive({})]\n#[non_exhaustive]\n#[serde(untagged)]\npub enum {name} {{\n",
            derives(uses)
        );
        let mut from = String::new();
        for part in &schema.any_of {
            let (kind, _) = self.plain(name, part, uses)?;
            let variant = if kind == "String" { "Name" } else { kind.as_str() };
            let _ =
                writeln!(text, "    {}    {variant}({kind}),", doc(&part.description, "    ").trim_start());
            let _ = write!(
                from,
                "impl From<{kind}> for {name} {{\n    fn from(value: {kind}) -> Self {{\n        Self::{variant}(value)\n    }}\n}}\n\n"
            );
            if kind == "String" {
                let _ = write!(
                    from,
                    "impl From<&str> for {name} {{\n    fn from(value: &str) -> Self {{\n        Self::{variant}(value.to_owned())\n    }}\n}}\n\n"
                );
            }
        }
        text += "}\n\n";
        self.out += &(text + &from);
        Ok(())
    }

    /// Declares an enum unless there is an equal one, and returns its name.
    fn open_enum(&mut self, name: &str, schema: &Schema) -> String {
        let values = schema.texts();
        let mut sorted = values.clone();
        sorted.sort_unstable();
        let key = sorted.join(",");
        if let Some(known) = self.enums.get(&key) {
            return known.clone();
        }
        let name = of_enum(&values).map_or_else(|| renamed(name.to_owned()), str::to_owned);
        self.enums.insert(key, name.clone());
        self.names.insert(name.clone());
        self.write_enum(&name, &schema.description, &values);
        name
    }

    fn write_enum(&mut self, name: &str, description: &str, values: &[&str]) {
        let mut text = String::from("open_enum! {\n");
        text += &doc(&described(description), "    ");
        let _ = writeln!(text, "    pub enum {name} {{");
        for value in values {
            let _ = writeln!(text, "        {} = {value:?},", upper_camel(value));
        }
        text += "    }\n}\n\n";
        self.enum_source += &text;
    }

    /// The codes of problem documents, and those of the library.
    fn codes(&mut self) -> Result<(), String> {
        let document = self.document;
        let problem =
            document.components.schemas.get("Problem").and_then(|schema| schema.properties.get("code"));
        let problem = problem.ok_or("there is no Problem with a code")?;
        let mut values = problem.texts();
        for code in &self.selection.codes {
            if !values.contains(&code.as_str()) {
                values.push(code);
            }
        }
        self.write_enum("Code", "The kind of an error. Codes are stable; texts are not.", &values);
        Ok(())
    }

    /// A struct for the query parameters of each list.
    fn queries(&mut self) -> Result<(), String> {
        let uses = Uses { in_requests: true, in_responses: false };
        for (path, method, operation) in self.operations() {
            let parameters: Vec<_> = operation.parameters.iter().filter(|one| one.place == "query").collect();
            if method != "get" || parameters.len() < 2 {
                continue;
            }
            let title = upper_camel(&(operation.id[..1].to_uppercase() + &operation.id[1..]));
            let mut fields = Vec::new();
            let mut pairs = String::new();
            for parameter in parameters {
                let type_name = renamed(format!("{title}{}", upper_camel(&parameter.name)));
                let (kind, with) = self.plain(&type_name, &parameter.schema, uses)?;
                let name = field(&parameter.name);
                let value = match kind.as_str() {
                    "SystemTime" => "timestamp::text(*value)".to_owned(),
                    "String" => "value.clone()".to_owned(),
                    _ => "value.to_string()".to_owned(),
                };
                let _ = write!(
                    pairs,
                    "if let Some(value) = &self.{name} {{\npairs.push((\"{}\", {value}));\n}}\n",
                    parameter.name
                );
                fields.push(Field {
                    name,
                    key: parameter.name.clone(),
                    doc: parameter.description.clone(),
                    kind,
                    form: Form::Optional,
                    with,
                    has_default: true,
                });
            }
            let name = format!("{title}Query");
            let mut text = doc(&format!("The parameters of `GET {path}`."), "");
            let _ = write!(
                text,
                "#[derive(Debug, Clone, PartialEq, Default)]\n#[non_exhaustive]\npub struct {name} {{\n"
            );
            for one in &fields {
                text += &doc(&one.doc, "    ");
                let _ = writeln!(text, "    pub {}: Option<{}>,", one.name, one.kind);
            }
            text += "}\n\n";
            text += &constructor(&name, &fields, false);
            let _ = write!(
                text,
                "impl {name} {{\n    pub(crate) fn pairs(&self) -> Vec<(&'static str, String)> {{\n        let mut pairs = Vec::new();\n{pairs}        pairs\n    }}\n}}\n\n"
            );
            self.out += &text;
        }
        Ok(())
    }
}

fn derives(uses: Uses) -> &'static str {
    match (uses.in_requests, uses.in_responses) {
        (true, true) => "Debug, Clone, PartialEq, Serialize, Deserialize",
        (true, false) => "Debug, Clone, PartialEq, Serialize",
        _ => "Debug, Clone, PartialEq, Deserialize",
    }
}

fn write_field(text: &mut String, field: &Field, uses: Uses, indent: &str, visibility: &str) {
    *text += &doc(&field.doc, indent);
    let Field { name, key, kind, with, form, .. } = field;
    let mut options = Vec::new();
    let bare = name.strip_prefix("r#").unwrap_or(name);
    if bare != key {
        options.push(format!("rename = {key:?}"));
    }
    let is_option = matches!(form, Form::Optional | Form::Nullable);
    if !with.is_empty() {
        let module =
            if is_option || *form == Form::Patch { format!("{with}::option") } else { (*with).to_owned() };
        match (uses.in_requests, uses.in_responses) {
            (true, true) => options.push(format!("with = {module:?}")),
            (true, false) => options.push(format!("serialize_with = \"{module}::serialize\"")),
            _ => options.push(format!("deserialize_with = \"{module}::deserialize\"")),
        }
    }
    if uses.in_responses {
        let is_bare_option = is_option && with.is_empty(); // serde's own rule
        match (form, kind.as_str()) {
            (Form::Required, "SystemTime") => options.push("default = \"timestamp::epoch\"".to_owned()),
            (Form::Required, _) if !field.has_default => {}
            _ if is_bare_option => {}
            _ => options.push("default".to_owned()),
        }
    }
    if uses.in_requests {
        match form {
            Form::Optional => options.push("skip_serializing_if = \"Option::is_none\"".to_owned()),
            Form::Patch => options.push("skip_serializing_if = \"Patch::is_keep\"".to_owned()),
            Form::Required | Form::Nullable | Form::Defaulted => {}
        }
    }
    if !options.is_empty() {
        let _ = writeln!(text, "{indent}#[serde({})]", options.join(", "));
    }
    let kind = match form {
        Form::Required | Form::Defaulted => kind.clone(),
        Form::Optional | Form::Nullable => format!("Option<{kind}>"),
        Form::Patch => format!("Patch<{kind}>"),
    };
    let _ = writeln!(text, "{indent}{visibility}{name}: {kind},");
}

/// `new` with the required fields, and a method for each other one.
fn constructor(name: &str, fields: &[Field], has_required: bool) -> String {
    let mut text = format!("impl {name} {{\n");
    let (mut parameters, mut values) = (String::new(), String::new());
    for one in fields {
        let Field { name, kind, form, .. } = one;
        match form {
            Form::Required => {
                let (parameter, value) = accept(name, kind);
                let _ = write!(parameters, "{parameter}, ");
                let _ = match value == *name {
                    true => write!(values, "{name}, "),
                    false => write!(values, "{name}: {value}, "),
                };
            }
            Form::Nullable => {
                let _ = write!(parameters, "{name}: Option<{kind}>, ");
                let _ = write!(values, "{name}, ");
            }
            Form::Optional => {
                let _ = write!(values, "{name}: None, ");
            }
            Form::Patch => {
                let _ = write!(values, "{name}: Patch::Keep, ");
            }
            Form::Defaulted => {
                let _ = write!(values, "{name}: Default::default(), ");
            }
        }
    }
    match has_required {
        true => {
            let _ = write!(
                text,
                "    /// With the required fields.\n    pub fn new({parameters}) -> Self {{\n        Self {{ {values} }}\n    }}\n\n"
            );
        }
        false => {
            text +=
                "    /// Without any field.\n    pub fn new() -> Self {\n        Self::default()\n    }\n\n";
        }
    }
    for one in fields {
        let Field { name, kind, form, doc: description, .. } = one;
        let bare = name.strip_prefix("r#").unwrap_or(name);
        let (parameter, value) = accept(name, kind);
        let wrapped = match form {
            Form::Optional => format!("Some({value})"),
            Form::Patch => format!("Patch::Set({value})"),
            _ => continue,
        };
        let text_of = if description.is_empty() {
            format!("Sets `{bare}`.")
        } else {
            format!("Sets `{bare}`: {description}")
        };
        text += &doc(&text_of, "    ");
        let _ = write!(
            text,
            "    #[must_use]\n    pub fn {name}(mut self, {parameter}) -> Self {{\n        self.{name} = {wrapped};\n        self\n    }}\n\n"
        );
        if *form == Form::Patch {
            let _ = write!(
                text,
                "    /// Clears `{bare}`.\n    #[must_use]\n    pub fn clear_{bare}(mut self) -> Self {{\n        self.{name} = Patch::Clear;\n        self\n    }}\n\n"
            );
        }
    }
    text + "}\n\n"
}

/// A parameter for a type, and the value that it becomes.
fn accept(name: &str, kind: &str) -> (String, String) {
    match kind {
        "bool" | "u64" | "i64" | "f64" | "SystemTime" | "Duration" | "Map<String, Value>" => {
            (format!("{name}: {kind}"), name.to_owned())
        }
        _ if kind.starts_with("Vec<") => {
            let element = &kind["Vec<".len()..kind.len() - 1];
            let value = format!("{name}.into_iter().map(Into::into).collect()");
            (format!("{name}: impl IntoIterator<Item = impl Into<{element}>>"), value)
        }
        _ if kind.starts_with("BTreeMap<String, ") => {
            let element = &kind["BTreeMap<String, ".len()..kind.len() - 1];
            let value =
                format!("{name}.into_iter().map(|(key, value)| (key.into(), value.into())).collect()");
            (format!("{name}: impl IntoIterator<Item = (impl Into<String>, impl Into<{element}>)>"), value)
        }
        _ => (format!("{name}: impl Into<{kind}>"), format!("{name}.into()")),
    }
}

fn described(text: &str) -> String {
    match text.is_empty() {
        true => "The schema of this name in `openapi.json`.".to_owned(),
        false => text.to_owned(),
    }
}

/// A comment, wrapped at 100 columns. Outside of code, brackets are no links and tags are no HTML.
fn doc(text: &str, indent: &str) -> String {
    if text.is_empty() {
        return String::new();
    }
    let mut out = String::new();
    let mut is_code = false;
    for (n, paragraph) in text.split("\n\n").enumerate() {
        if n > 0 {
            let _ = writeln!(out, "{indent}///");
        }
        let mut line = format!("{indent}///");
        for word in paragraph.split_whitespace() {
            let mut escaped = String::new();
            for c in word.chars() {
                is_code ^= c == '`';
                if !is_code && matches!(c, '[' | ']' | '<' | '>') {
                    escaped.push('\\');
                }
                escaped.push(c);
            }
            if line.chars().count() + 1 + escaped.chars().count() > 100 && line.trim_start() != "///" {
                out += &line;
                out.push('\n');
                line = format!("{indent}///");
            }
            line.push(' ');
            line += &escaped;
        }
        out += &line;
        out.push('\n');
    }
    out
}
