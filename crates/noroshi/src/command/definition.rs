//! What `noroshi experiment` and `noroshi notice` share: lists, and the file with both.
//!
//! A file contains `[[experiments]]` and `[[notices]]`, each with its `name` and the fields of the API's request. Definitions that
//! are not in the file stay.

use std::path::Path;

use serde_json::{Map, Value, json};

use crate::client::{self, Client, PageArguments, escape};
use crate::failure::Failure;
use crate::input::read;
use crate::output;

/// How a kind is listed.
pub(crate) struct Kind {
    /// The field that holds a page.
    pub(crate) list: &'static str,
    pub(crate) columns: &'static [&'static str],
    /// Formats a row of the table.
    pub(crate) shown: fn(Value) -> Value,
}

#[derive(Debug, clap::Args)]
pub(crate) struct List {
    /// Archived ones, newest first
    #[arg(long)]
    archived: bool,
    #[command(flatten)]
    page: PageArguments,
}

impl Kind {
    pub(crate) async fn list(
        &self,
        client: &Client,
        path: &str,
        list: List,
        format: output::Format,
    ) -> Result<(), Failure> {
        let listed = match list.archived {
            true => client::pages(client, path, self.list, Some("archived=true"), list.page).await?,
            // The server returns them all at once.
            false => {
                let entries = output::entries(&client.get(path).await?, self.list).to_vec();
                client::Listed { entries, next: None }
            }
        };
        let entries = match format.json {
            true => listed.entries,
            false => listed.entries.into_iter().map(self.shown).collect(),
        };
        client::Listed { entries, ..listed }.print(self.list, self.columns, format)
    }
}

/// Applies a file in order. On an error, earlier changes stay.
pub(crate) async fn apply(
    client: &Client,
    app: &str,
    file: &Path,
    format: output::Format,
) -> Result<(), Failure> {
    let definitions =
        parse(&read(file)?).map_err(|error| Failure::Usage(format!("{}: {error}", file.display())))?;
    for (kind, name, fields) in definitions {
        let path = format!("/v1/apps/{}/{kind}/{}", escape(app), escape(&name));
        let kept = client.put(&path, &fields.into()).await?;
        let state = output::cell(kept.get("state"));
        format.print(json!({"kind": kind, "kept": kept}), || format!("{kind} {name}: {state}"))?;
    }
    Ok(())
}

/// Kind, name and fields.
type Definition = (&'static str, String, Map<String, Value>);

/// Parses the whole file before anything is changed.
fn parse(text: &str) -> Result<Vec<Definition>, String> {
    let document: Value = match text.trim_start().starts_with('{') {
        true => serde_json::from_str(text).map_err(|error| error.to_string())?,
        false => plain(text.parse::<toml::Table>().map_err(|error| error.to_string())?.into()),
    };
    let mut document = document.as_object().cloned().unwrap_or_default();
    let mut definitions = Vec::new();
    for kind in ["experiments", "notices"] {
        let list = match document.remove(kind) {
            None => continue,
            Some(Value::Array(list)) => list,
            Some(_) => return Err(format!("{kind} must be a list: [[{kind}]]")),
        };
        for (at, one) in list.into_iter().enumerate() {
            let Value::Object(mut fields) = one else { return Err(format!("{kind}[{at}] must be a table")) };
            match fields.remove("name") {
                Some(Value::String(name)) => definitions.push((kind, name, fields)),
                _ => return Err(format!("{kind}[{at}] has no name")),
            }
        }
    }
    match document.keys().next() {
        Some(unknown) => Err(format!("unknown key {unknown}; a file has [[experiments]] and [[notices]]")),
        None => Ok(definitions),
    }
}

/// Converts TOML to JSON. Times become strings.
fn plain(value: toml::Value) -> Value {
    match value {
        toml::Value::Datetime(time) => time.to_string().into(),
        toml::Value::Array(items) => items.into_iter().map(plain).collect(),
        toml::Value::Table(fields) => {
            Value::Object(fields.into_iter().map(|(name, value)| (name, plain(value))).collect())
        }
        toml::Value::String(text) => text.into(),
        toml::Value::Integer(number) => number.into(),
        toml::Value::Float(number) => number.into(),
        toml::Value::Boolean(flag) => flag.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_parsed_as_toml_or_json() {
        let toml = "[[experiments]]\nname = \"a\"\nstarts_at = 2026-01-15T09:30:00Z\nvariants = [{name = \"x\", weight = 1}]\n\
                    [[notices]]\nname = \"n\"\ndata = [true]\n";
        let json = r#"{"experiments": [{"name": "a", "starts_at": "2026-01-15T09:30:00Z",
            "variants": [{"name": "x", "weight": 1}]}], "notices": [{"name": "n", "data": [true]}]}"#;
        let read = parse(toml).expect("TOML");
        assert_eq!(Ok(&read), parse(json).as_ref());
        assert_eq!(
            (read[0].0, &*read[0].1, &read[0].2["starts_at"]),
            ("experiments", "a", &json!("2026-01-15T09:30:00Z"))
        );
        assert_eq!((read[1].0, read[1].2.len()), ("notices", 1));
    }

    #[test]
    fn a_file_of_another_form_is_rejected() {
        for (text, part) in [
            ("experiment = 1", "unknown key experiment"),
            ("[[experiments]]\nvariants = []", "experiments[0] has no name"),
            ("[experiments]\nname = \"a\"", "[[experiments]]"),
            ("a", "TOML"),
            ("{", "EOF"),
        ] {
            let error = parse(text).expect_err(text);
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
