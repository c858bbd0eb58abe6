//! Output of commands: tables for people, JSON for scripts. Results go to standard output and other messages to standard error, so
//! a pipe contains only results.

use std::fmt::Display;
use std::io::{IsTerminal, Write};

use comfy_table::{ContentArrangement, Table, presets};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde_json::Value;

use crate::failure::Failure;

/// For every command that prints a result; after the options of the server, whose heading ends here.
#[derive(Debug, Clone, Copy, clap::Args)]
#[command(next_help_heading = None::<&'static str>)]
pub(crate) struct Format {
    /// Print JSON instead of text
    #[arg(long, global = true)]
    pub(crate) json: bool,
}

impl Format {
    /// Prints JSON, or this text.
    pub(crate) fn print<T: Display>(
        self,
        answer: impl Display,
        text: impl FnOnce() -> T,
    ) -> Result<(), Failure> {
        if self.json { line(answer) } else { line(text()) }
    }

    /// Prints JSON, or one row for each field.
    pub(crate) fn details(self, answer: &Value) -> Result<(), Failure> {
        if self.json { line(answer) } else { details(answer, &[]) }
    }

    /// Prints JSON, or the list in this field as a table.
    pub(crate) fn list(self, answer: &Value, name: &str, columns: &[&str]) -> Result<(), Failure> {
        if self.json { line(answer) } else { table(columns, rows(entries(answer, name), columns)) }
    }

    /// A progress bar on standard error; hidden without a terminal, or with JSON.
    pub(crate) fn progress(self, total: Option<u64>, template: &str) -> ProgressBar {
        let is_shown = std::io::stderr().is_terminal() && !self.json;
        let target = if is_shown { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
        let bar = ProgressBar::with_draw_target(total, target);
        // The templates are valid constants; the plain bar would do as well.
        match ProgressStyle::with_template(template) {
            Ok(style) => bar.with_style(style),
            Err(_) => bar,
        }
    }
}

/// The list in a field of an answer; empty without one.
pub(crate) fn entries<'a>(answer: &'a Value, name: &str) -> &'a [Value] {
    answer[name].as_array().map_or(&[], Vec::as_slice)
}

/// The text in a field of an answer; empty without one.
pub(crate) fn text<'a>(answer: &'a Value, name: &str) -> &'a str {
    answer[name].as_str().unwrap_or_default()
}

/// The number in a field of an answer; 0 without one.
pub(crate) fn number(answer: &Value, name: &str) -> u64 {
    answer[name].as_u64().unwrap_or(0)
}

/// Prints a line; a closed pipe (`| head`) ends the command quietly.
pub(crate) fn line(text: impl Display) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    match writeln!(out, "{text}").and_then(|()| out.flush()) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Err(Failure::OutputGone),
        Err(error) => Err(Failure::failed(format!("standard output: {error}"))),
    }
}

pub(crate) fn table(head: &[&str], rows: Vec<Vec<String>>) -> Result<(), Failure> {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(head.iter().map(|name| name.to_uppercase()));
    for row in rows {
        table.add_row(row);
    }
    line(table.to_string().lines().map(str::trim_end).collect::<Vec<_>>().join("\n"))
}

/// Formats a field for people.
pub(crate) fn cell(value: Option<&Value>) -> String {
    match value {
        None | Some(Value::Null) => "-".to_owned(),
        Some(Value::String(text)) => clean(text),
        Some(Value::Array(items)) => {
            let items: Vec<String> = items.iter().map(|item| cell(Some(item))).collect();
            if items.is_empty() { "-".to_owned() } else { items.join(", ") }
        }
        Some(Value::Object(fields)) => {
            let fields: Vec<String> =
                fields.iter().map(|(name, value)| format!("{name}={}", cell(Some(value)))).collect();
            if fields.is_empty() { "-".to_owned() } else { fields.join(" ") }
        }
        Some(other) => other.to_string(),
    }
}

/// Prints one row for each field except these.
pub(crate) fn details(value: &Value, others: &[&str]) -> Result<(), Failure> {
    let mut fields = value.as_object().cloned().unwrap_or_default();
    fields.retain(|name, _| !others.contains(&name.as_str()));
    let width = fields.keys().map(String::len).max().unwrap_or(0);
    for (name, value) in &fields {
        line(format_args!("{name:width$}  {}", cell(Some(value))))?;
    }
    Ok(())
}

/// The columns of a list of objects.
pub(crate) fn rows(list: &[Value], columns: &[&str]) -> Vec<Vec<String>> {
    list.iter().map(|item| columns.iter().map(|name| cell(item.get(*name))).collect()).collect()
}

/// Replaces control characters of untrusted text, which could move the terminal's cursor.
pub(crate) fn clean(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

/// Quotes text as one word of a POSIX shell.
pub(crate) fn quoted(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/._-+:@%,=".contains(&byte);
    match !text.is_empty() && text.bytes().all(plain) {
        true => text.to_owned(),
        false => format!("'{}'", text.replace('\'', "'\\''")),
    }
}
