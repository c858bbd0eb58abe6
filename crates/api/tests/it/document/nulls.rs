//! Parsers accept `null` exactly where the documents allow it: in each field of each example, at any depth.

use noroshi_api::body::{self, Author};
use noroshi_api::{Limits, Problem, document};
use noroshi_types::Timestamp;
use serde_json::Value;

use super::{examples, parsed};
use crate::service::NOW;

type Parse<'a> = &'a dyn Fn(&[u8]) -> Result<(), Problem>;

fn resolved<'a>(document: &'a Value, schema: &'a Value) -> &'a Value {
    match schema["$ref"].as_str() {
        Some(reference) => {
            resolved(document, document.pointer(reference.trim_start_matches('#')).expect("it leads"))
        }
        None => schema,
    }
}

fn allows_null(document: &Value, schema: &Value) -> bool {
    let schema = resolved(document, schema);
    let each =
        |name: &str| schema[name].as_array().map(|all| all.iter().map(|one| allows_null(document, one)));
    let of_type = match &schema["type"] {
        Value::Array(types) => types.iter().any(|name| name == "null"),
        Value::String(name) => name == "null",
        _ => true,
    };
    of_type
        && schema.get("const").is_none_or(Value::is_null)
        && schema["enum"].as_array().is_none_or(|values| values.iter().any(Value::is_null))
        && each("allOf").is_none_or(|mut all| all.all(|allows| allows))
        && each("anyOf").is_none_or(|mut any| any.any(|allows| allows))
        && each("oneOf").is_none_or(|mut any| any.any(|allows| allows))
}

/// The branch of a `oneOf` that describes `value`.
fn chosen<'a>(document: &'a Value, schema: &'a Value, value: &Value) -> &'a Value {
    let schema = resolved(document, schema);
    let choices = ["oneOf", "anyOf", "allOf"].into_iter().find_map(|name| schema[name].as_array());
    let Some(choices) = choices else { return schema };
    let fits = |schema: &&Value| {
        let fields = value.as_object().into_iter().flatten();
        fields.clone().all(|(name, value)| {
            let field = &schema["properties"][name];
            !field.is_null() && field.get("const").is_none_or(|one| one == value)
        }) && resolved(document, schema)["type"].as_str().is_none_or(|name| name != "null")
    };
    let choices: Vec<&Value> = choices.iter().map(|one| chosen(document, one, value)).collect();
    choices.iter().find(|schema| fits(schema)).copied().unwrap_or(schema)
}

/// Every place in `value` known to the schema, and whether it allows `null`.
fn places(document: &Value, schema: &Value, value: &Value, at: &str, found: &mut Vec<(String, bool)>) {
    let schema = chosen(document, schema, value);
    match value {
        Value::Object(fields) => {
            for (name, field) in schema["properties"].as_object().into_iter().flatten() {
                let at = format!("{at}/{}", name.replace('~', "~0").replace('/', "~1"));
                found.push((at.clone(), allows_null(document, field)));
                if let Some(value) = fields.get(name) {
                    places(document, field, value, &at, found);
                }
            }
            let others = &schema["additionalProperties"];
            for (name, value) in fields.iter().filter(|_| others.is_object()) {
                let at = format!("{at}/{}", name.replace('~', "~0").replace('/', "~1"));
                found.push((at.clone(), allows_null(document, others)));
                places(document, others, value, &at, found);
            }
        }
        Value::Array(items) if schema["items"].is_object() => {
            for (index, item) in items.iter().enumerate() {
                found.push((format!("{at}/{index}"), allows_null(document, &schema["items"])));
                places(document, &schema["items"], item, &format!("{at}/{index}"), found);
            }
        }
        _ => {}
    }
}

fn with_null(value: &Value, at: &str) -> Value {
    let mut value = value.clone();
    let (parent, name) = at.rsplit_once('/').expect("a place");
    match value.pointer_mut(parent).expect("it is there") {
        Value::Object(fields) => {
            fields.insert(name.replace("~1", "/").replace("~0", "~"), Value::Null);
        }
        Value::Array(items) => items[name.parse::<usize>().expect("an index")] = Value::Null,
        _ => unreachable!("a place is in an object or an array"),
    }
    value
}

/// The differences: a rule over several fields may reject an allowed value, with another error.
fn differences(document: &Value, path: &str, method: &str, parse: Parse<'_>) -> Vec<String> {
    let content = document["paths"][path][method]["requestBody"]["content"].as_object().expect("content");
    // Of several lines the document describes one by name.
    let schema = match path.rsplit('/').next() {
        Some("batch") if path.contains("devices") => &document["components"]["schemas"]["DeviceRegistration"],
        Some("batch") => &document["components"]["schemas"]["Notification"],
        Some("relay") => &document["components"]["schemas"]["Relayed"],
        Some("recipients") => &document["components"]["schemas"]["Recipient"],
        _ => &content.values().next().expect("a media type")["schema"],
    };
    let mut differences = Vec::new();
    for example in examples(document, path, method) {
        let lines: Vec<Value> = match example.as_str() {
            Some(lines) => lines.lines().map(parsed).collect(),
            None => vec![example],
        };
        for line in lines {
            let mut found = Vec::new();
            places(document, schema, &line, "", &mut found);
            assert!(!found.is_empty() || line == serde_json::json!({}), "{method} {path}: {line}");
            for (at, allowed) in found {
                let result = parse(with_null(&line, &at).to_string().as_bytes());
                let is_wrong = match (&result, allowed) {
                    (Ok(()), allowed) => !allowed,
                    (Err(problem), true) => {
                        problem.detail().starts_with("invalid type: null")
                            || problem.detail() == "must be an object"
                    }
                    (Err(_), false) => false,
                };
                if is_wrong {
                    differences
                        .push(format!("{method} {path} {at}: the document allows it: {allowed}, {result:?}"));
                }
            }
        }
    }
    differences
}

#[test]
fn null_is_accepted_where_the_documents_allow_it_and_nowhere_else() {
    let limits = Limits::default();
    let change = |author| move |bytes: &[u8]| body::app_change(bytes, Default::default(), author).map(drop);
    let public: &[(&str, &str, Parse<'_>)] = &[
        ("/v1/notifications", "post", &|bytes| body::notification(bytes, &limits, NOW).map(drop)),
        ("/v1/notifications/batch", "post", &|bytes| body::notification(bytes, &limits, NOW).map(drop)),
        ("/v1/notifications/relay", "post", &|bytes| body::relayed(bytes, &limits, Timestamp(0)).map(drop)),
        ("/v1/push/channels", "post", &|bytes| body::channel(bytes).map(drop)),
        ("/v1/push/channels/{name}", "patch", &|bytes| body::channel_change(bytes).map(drop)),
        ("/v1/push/channels/{name}/broadcasts", "post", &|bytes| body::broadcast(bytes, NOW).map(drop)),
        ("/v1/presence", "post", &|bytes| body::presence_query(bytes).map(drop)),
        ("/v1/devices", "post", &|bytes| body::device(bytes).map(drop)),
        ("/v1/devices/batch", "post", &|bytes| body::device(bytes).map(drop)),
        ("/v1/me", "patch", &|bytes| body::device_change(bytes).map(drop)),
        ("/v1/me/push-token", "put", &|bytes| body::push_token(bytes).map(drop)),
        ("/v1/me/push-tokens/{kind}", "put", &|bytes| {
            body::token_of_path(bytes, body::token_key("voip", "")?, Timestamp(0)).map(drop)
        }),
        ("/v1/me/presence", "put", &|bytes| body::presence(bytes).map(drop)),
        ("/v1/me/inbox/ack", "post", &|bytes| body::ids(bytes).map(drop)),
        ("/v1/me/opened", "post", &|bytes| body::ids(bytes).map(drop)),
        ("/v1/me/items", "patch", &|bytes| body::item_change(bytes).map(drop)),
        ("/v1/me/preferences", "put", &|bytes| body::preferences(bytes).map(drop)),
        ("/v1/me/exposures", "post", &|bytes| body::exposures(bytes).map(drop)),
        ("/v1/me/endpoints", "post", &|bytes| body::endpoint(bytes).map(drop)),
        ("/v1/apps/{app}", "patch", &change(Author::Operator)),
        ("/v1/apps/{app}/keys", "post", &|bytes| body::key(bytes, super::BEFORE_EXPIRY).map(drop)),
        ("/v1/apps/{app}/push/{id}/test", "post", &|bytes| body::push_test(bytes).map(drop)),
        ("/v1/apps/{app}/push/{id}/rotate", "post", &|bytes| body::rotation(bytes).map(drop)),
        ("/v1/apps/{app}/experiments/{name}", "put", &|bytes| body::experiment(bytes).map(drop)),
        ("/v1/apps/{app}/experiments/{name}", "patch", &|bytes| body::killing(bytes).map(drop)),
        ("/v1/apps/{app}/notices/{name}", "put", &|bytes| body::notice(bytes).map(drop)),
        ("/v1/campaigns", "post", &|bytes| body::campaign(bytes, &limits).map(drop)),
        ("/v1/campaigns/{id}/recipients", "post", &|bytes| body::recipient(bytes, &limits).map(drop)),
        ("/v1/activities", "post", &super::activity),
        ("/v1/activities/{id}", "patch", &|bytes| body::activity_update(bytes, Timestamp(0)).map(drop)),
        ("/v1/activities/{id}", "delete", &|bytes| {
            body::activity_end(bytes, Timestamp(2_000_000_000_000)).map(drop)
        }),
        ("/v1/apps/{app}/topic-rules", "put", &|bytes| {
            body::topic_rules(bytes, None, Author::Operator).map(drop)
        }),
    ];
    let admin: &[(&str, &str, Parse<'_>)] = &[
        ("/v1/apps", "post", &|bytes| body::app(bytes).map(drop)),
        ("/v1/apps/{app}", "patch", &change(Author::Operator)),
        ("/v1/apps/{app}", "put", &|bytes| body::mirror(bytes).map(drop)),
        ("/v1/apps/{app}/keys", "post", &|bytes| body::key(bytes, super::BEFORE_EXPIRY).map(drop)),
        ("/v1/apps/{app}/quotas", "put", &|bytes| body::quotas(bytes).map(drop)),
        ("/v1/apps/{app}/quotas", "patch", &|bytes| body::quota_changes(bytes).map(drop)),
        ("/v1/drain", "put", &|bytes| body::drain(bytes).map(drop)),
        ("/v1/apps/{app}/push/{id}/test", "post", &|bytes| body::push_test(bytes).map(drop)),
        ("/v1/apps/{app}/push/{id}/rotate", "post", &|bytes| body::rotation(bytes).map(drop)),
        ("/v1/apps/{app}/experiments/{name}", "put", &|bytes| body::experiment(bytes).map(drop)),
        ("/v1/apps/{app}/experiments/{name}", "patch", &|bytes| body::killing(bytes).map(drop)),
        ("/v1/apps/{app}/notices/{name}", "put", &|bytes| body::notice(bytes).map(drop)),
        ("/v1/apps/{app}/topic-rules", "put", &|bytes| {
            body::topic_rules(bytes, None, Author::Operator).map(drop)
        }),
    ];
    let mut all = Vec::new();
    for (text, checks) in [(document::PUBLIC, public), (document::ADMIN, admin)] {
        let document = parsed(text);
        for (path, method, parse) in checks {
            all.extend(differences(&document, path, method, *parse));
        }
    }
    assert!(all.is_empty(), "{}", all.join("\n"));
}
