//! `/docs`: the public document as a page of plain HTML, rendered once. Without scripts and external resources.

use std::fmt::Write;
use std::sync::LazyLock;

use noroshi_protocol::http::REFUSALS;
use serde_json::Value;

use crate::error::Code;

const STYLE: &str = include_str!("page.css");

/// Order of the methods of a path.
const METHODS: [&str; 5] = ["post", "get", "put", "patch", "delete"];

pub(crate) fn page() -> &'static str {
    static PAGE: LazyLock<String> = LazyLock::new(|| render(super::public()));
    &PAGE
}

/// Renders the built-in document. Missing parts are left out.
fn render(document: &str) -> String {
    let document: Value = serde_json::from_str(document).unwrap_or_default();
    let mut out = String::with_capacity(2 * document.to_string().len());
    let title = text(&document["info"]["title"]);
    let _ = write!(
        out,
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
         <title>{title} API</title><style>{STYLE}</style></head><body>\
         <nav><a class=\"home\" href=\"#top\">狼煙 {title}</a>{}<a href=\"#errors\">Errors</a>\
         <a href=\"#schemas\">Schemas</a><a href=\"/openapi.json\">openapi.json</a></nav><main id=\"top\"><h1>{title} API</h1>{}",
        navigation(&document),
        paragraphs(&document["info"]["description"]),
    );
    push_credentials(&mut out, &document);
    for tag in items(&document["tags"]) {
        push_tag(&mut out, &document, tag);
    }
    push_errors(&mut out, &document);
    push_schemas(&mut out, &document);
    out.push_str("</main></body></html>\n");
    out
}

fn navigation(document: &Value) -> String {
    let link = |tag: &Value| format!("<a href=\"#{}\">{}</a>", slug(&tag["name"]), text(&tag["name"]));
    items(&document["tags"]).iter().map(link).collect()
}

fn push_credentials(out: &mut String, document: &Value) {
    out.push_str("<section><h2 id=\"credentials\">Credentials</h2><p>All travel as <code>Authorization: Bearer …</code>.</p><dl>");
    for (name, scheme) in entries(&document["components"]["securitySchemes"]) {
        let _ =
            write!(out, "<dt><code>{}</code></dt><dd>{}</dd>", escape(name), inline(&scheme["description"]));
    }
    out.push_str("</dl></section>");
}

fn push_tag(out: &mut String, document: &Value, tag: &Value) {
    let (id, name) = (slug(&tag["name"]), text(&tag["name"]));
    let _ = write!(out, "<section><h2 id=\"{id}\">{name}</h2><p>{}</p>", inline(&tag["description"]));
    for (path, item) in entries(&document["paths"]) {
        for method in METHODS {
            let operation = &item[method];
            if operation["tags"][0] == tag["name"] {
                push_operation(out, method, path, operation);
            }
        }
    }
    out.push_str("</section>");
}

fn push_operation(out: &mut String, method: &str, path: &str, operation: &Value) {
    let id = text(&operation["operationId"]);
    let _ = write!(
        out,
        "<details id=\"{id}\"><summary><b class=\"method {method}\">{}</b> <code>{}</code> <span>{}</span></summary>{}",
        method.to_uppercase(),
        escape(path),
        inline(&operation["summary"]),
        paragraphs(&operation["description"]),
    );
    push_parameters(out, items(&operation["parameters"]));
    push_request(out, method, path, operation);
    out.push_str("<h4>Answers</h4><dl class=\"answers\">");
    for (status, response) in entries(&operation["responses"]) {
        push_response(out, status, response);
    }
    out.push_str("</dl></details>");
}

fn push_parameters(out: &mut String, parameters: &[Value]) {
    if parameters.is_empty() {
        return;
    }
    out.push_str("<h4>Parameters</h4><table>");
    for parameter in parameters {
        let _ = write!(
            out,
            "<tr><td><code>{}</code></td><td>{}</td><td>{}</td></tr>",
            text(&parameter["name"]),
            text(&parameter["in"]),
            inline(&parameter["description"]),
        );
    }
    out.push_str("</table>");
}

fn push_request(out: &mut String, method: &str, path: &str, operation: &Value) {
    let media = entries(&operation["requestBody"]["content"]).next();
    let Some((media_type, content)) = media else {
        push_curl(out, method, path, operation, None);
        return;
    };
    let schema =
        reference(&content["schema"]).map(|name| format!(" (<a href=\"#schema-{name}\">{name}</a>)"));
    let _ = write!(out, "<h4>Body: <code>{}</code>{}</h4>", escape(media_type), schema.unwrap_or_default());
    if !content["schema"]["description"].is_null() {
        let _ = write!(out, "<p>{}</p>", inline(&content["schema"]["description"]));
    }
    for (_, example) in entries(&content["examples"]) {
        let _ = write!(out, "<p>{}:</p>", inline(&example["summary"]));
        push_curl(out, method, path, operation, Some((media_type, &example["value"])));
    }
    if !content["example"].is_null() {
        push_curl(out, method, path, operation, Some((media_type, &content["example"])));
    }
}

fn push_curl(out: &mut String, method: &str, path: &str, operation: &Value, body: Option<(&str, &Value)>) {
    let mut command = String::from("curl");
    if method != "get" {
        let _ = write!(command, " -X {}", method.to_uppercase());
    }
    let _ = write!(command, " \"$NOROSHI{}\"", path.replace('{', "$").replace('}', ""));
    if items(&operation["security"]).first().is_some_and(|first| first.is_object()) {
        let key = operation["security"][0].get("apiKey").map_or("TOKEN", |_| "KEY");
        let _ = write!(command, " \\\n  -H \"Authorization: Bearer ${key}\"");
    }
    if let Some((media_type, example)) = body {
        let (flag, text) = match example {
            Value::String(lines) => ("--data-binary", lines.trim_end().to_owned()),
            value => ("-d", serde_json::to_string_pretty(value).unwrap_or_default()),
        };
        let quoted = text.replace('\'', "'\\''");
        let _ = write!(command, " \\\n  -H 'Content-Type: {media_type}' \\\n  {flag} '{quoted}'");
    }
    let _ = write!(out, "<pre>{}</pre>", escape(&command));
}

fn push_response(out: &mut String, status: &str, response: &Value) {
    if let Some(name) = reference(response) {
        let _ = write!(out, "<dt>{}</dt><dd><a href=\"#errors\">{name}</a></dd>", escape(status));
        return;
    }
    let _ = write!(out, "<dt>{}</dt><dd>{}", escape(status), inline(&response["description"]));
    if let Some((_, content)) = entries(&response["content"]).next() {
        if let Some(name) = reference(&content["schema"]) {
            let _ = write!(out, " <a href=\"#schema-{name}\">{name}</a>");
        }
        match &content["example"] {
            Value::Null => {}
            Value::String(lines) => drop(write!(out, "<pre>{}</pre>", escape(lines.trim_end()))),
            value => drop(write!(
                out,
                "<pre>{}</pre>",
                escape(&serde_json::to_string_pretty(value).unwrap_or_default())
            )),
        }
    }
    out.push_str("</dd>");
}

/// The anchors that the `type` of problems links to.
fn push_errors(out: &mut String, document: &Value) {
    out.push_str(
        "<section><h2 id=\"errors\">Errors</h2><p>RFC 9457 problems, <code>application/problem+json</code>. \
         Rely on <code>code</code>; the texts are for humans.</p><table>",
    );
    let own = Code::ALL.map(|code| (code.as_str(), code.status(), code.title(), code.advice()));
    let of_connections =
        REFUSALS.map(|refusal| (refusal.code, refusal.status, refusal.title, refusal.advice));
    let others = of_connections.into_iter().filter(|(name, ..)| own.iter().all(|(own, ..)| own != name));
    for (name, status, title, advice) in own.into_iter().chain(others) {
        let _ = write!(
            out,
            "<tr id=\"{name}\"><td><code>{name}</code></td><td>{status}</td><td>{title}. {}</td></tr>",
            inline_text(advice),
        );
    }
    let example = &document["components"]["schemas"]["Problem"]["examples"][0];
    let _ = write!(
        out,
        "</table><pre>{}</pre></section>",
        escape(&serde_json::to_string_pretty(example).unwrap_or_default())
    );
}

fn push_schemas(out: &mut String, document: &Value) {
    out.push_str("<section><h2 id=\"schemas\">Schemas</h2>");
    for (name, schema) in entries(&document["components"]["schemas"]) {
        let name = escape(name);
        let _ = write!(
            out,
            "<details id=\"schema-{name}\"><summary><code>{name}</code> <span>{}</span></summary>",
            inline(&schema["description"]),
        );
        push_properties(out, schema);
        for variant in items(&schema["oneOf"]) {
            push_properties(out, variant);
        }
        out.push_str("</details>");
    }
    out.push_str("</section>");
}

fn push_properties(out: &mut String, schema: &Value) {
    if !schema["properties"].is_object() {
        let _ = write!(out, "<p>{}</p>", kind(schema));
        return;
    }
    let required = items(&schema["required"]);
    out.push_str("<table>");
    for (name, property) in entries(&schema["properties"]) {
        let mark = if required.iter().any(|required| required == name) { " <b>required</b>" } else { "" };
        let _ = write!(
            out,
            "<tr><td><code>{}</code></td><td>{}{mark}</td><td>{}</td></tr>",
            escape(name),
            kind(property),
            inline(&property["description"]),
        );
    }
    out.push_str("</table>");
}

/// A short description of a schema's type.
fn kind(schema: &Value) -> String {
    if let Some(name) = reference(schema) {
        return format!("<a href=\"#schema-{name}\">{name}</a>");
    }
    let any = items(&schema["anyOf"]).iter().chain(items(&schema["oneOf"]));
    let any: Vec<String> = any.filter(|one| one["type"] != "null").map(kind).collect();
    if !any.is_empty() {
        return any.join(" or ");
    }
    let words: Vec<String> = items(&schema["enum"]).iter().filter(|word| !word.is_null()).map(code).collect();
    if !words.is_empty() {
        return words.join(" ");
    }
    // Of a type and null, the type.
    let name = schema["type"].get(0).unwrap_or(&schema["type"]);
    match name {
        Value::String(array) if array == "array" => format!("array of {}", kind(&schema["items"])),
        Value::String(name) => escape(name),
        _ if !schema["const"].is_null() => code(&schema["const"]),
        _ => "any JSON".to_owned(),
    }
}

fn code(value: &Value) -> String {
    format!("<code>{}</code>", escape(&value.to_string()))
}

fn reference(value: &Value) -> Option<String> {
    value["$ref"].as_str().and_then(|path| path.rsplit('/').next()).map(escape)
}

fn items(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn entries(value: &Value) -> impl Iterator<Item = (&str, &Value)> {
    value.as_object().into_iter().flatten().map(|(name, value)| (name.as_str(), value))
}

fn text(value: &Value) -> String {
    escape(value.as_str().unwrap_or_default())
}

fn slug(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_lowercase().replace(' ', "-")
}

fn paragraphs(value: &Value) -> String {
    let paragraph = |part: &str| format!("<p>{}</p>", inline_text(part));
    value.as_str().unwrap_or_default().split("\n\n").filter(|part| !part.is_empty()).map(paragraph).collect()
}

fn inline(value: &Value) -> String {
    inline_text(value.as_str().unwrap_or_default())
}

/// Back-quotes are the only markup in the document's texts.
fn inline_text(text: &str) -> String {
    let part = |(i, part): (usize, &str)| match i % 2 {
        0 => escape(part),
        _ => format!("<code>{}</code>", escape(part)),
    };
    text.split('`').enumerate().map(part).collect()
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_operation_and_code_has_an_anchor() {
        let page = page();
        let document: Value = serde_json::from_str(super::super::PUBLIC).expect("JSON");
        for (path, item) in entries(&document["paths"]) {
            for (method, operation) in entries(item) {
                let id = operation["operationId"].as_str().expect("operationId");
                assert!(page.contains(&format!("<details id=\"{id}\">")), "{method} {path}");
            }
        }
        let of_connections = REFUSALS.iter().map(|refusal| refusal.code);
        for code in Code::ALL.into_iter().map(Code::as_str).chain(of_connections) {
            assert_eq!(page.matches(&format!("<tr id=\"{code}\">")).count(), 1, "{code}");
        }
    }

    #[test]
    fn the_page_loads_no_external_resource() {
        let page = page();
        for loading in ["<script", "<link", "<img", "src=", "@import", "url("] {
            assert!(!page.contains(loading), "{loading}");
        }
    }

    #[test]
    fn texts_are_escaped() {
        assert_eq!(inline_text("a `<b>` & c"), "a <code>&lt;b&gt;</code> &amp; c");
    }
}
