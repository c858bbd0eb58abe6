//! An OpenAPI 3.1 document, as far as types need it.

use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::Value;

/// An object that keeps the order of its members.
#[derive(Debug, Clone)]
pub(crate) struct Ordered<T>(pub(crate) Vec<(String, T)>);

impl<T> Default for Ordered<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T> Ordered<T> {
    pub(crate) fn get(&self, name: &str) -> Option<&T> {
        self.0.iter().find(|(key, _)| key == name).map(|(_, value)| value)
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Ordered<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Members<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for Members<T> {
            type Value = Ordered<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(Ordered(members))
            }
        }
        deserializer.deserialize_map(Members(PhantomData))
    }
}

#[derive(Debug, Clone, Default, serde::Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Schema {
    #[serde(rename = "$ref")]
    pub(crate) reference: Option<String>,
    #[serde(rename = "type")]
    pub(crate) types: Types,
    pub(crate) format: Option<String>,
    pub(crate) description: String,
    pub(crate) title: Option<String>,
    pub(crate) minimum: Option<f64>,
    pub(crate) properties: Ordered<Schema>,
    pub(crate) required: Vec<String>,
    pub(crate) items: Option<Box<Schema>>,
    pub(crate) additional_properties: Option<Additional>,
    #[serde(rename = "enum")]
    pub(crate) values: Vec<Value>,
    #[serde(rename = "const")]
    pub(crate) constant: Option<Value>,
    pub(crate) one_of: Vec<Schema>,
    pub(crate) any_of: Vec<Schema>,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Types(pub(crate) Vec<String>);

impl<'de> Deserialize<'de> for Types {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(serde::Deserialize)]
        #[serde(untagged)]
        enum Form {
            One(String),
            Many(Vec<String>),
        }
        Ok(Self(match Form::deserialize(deserializer)? {
            Form::One(name) => vec![name],
            Form::Many(names) => names,
        }))
    }
}

#[derive(Debug, Clone, serde::Deserialize)]
#[serde(untagged)]
pub(crate) enum Additional {
    Any(#[allow(dead_code, reason = "false and true mean the same here")] bool),
    Schema(Box<Schema>),
}

impl Schema {
    fn is_null(&self) -> bool {
        self.types.0 == ["null"]
    }

    /// The schema of the other values, and whether null is allowed.
    pub(crate) fn without_null(&self) -> (Schema, bool) {
        let parts: Vec<&Schema> = self.any_of.iter().chain(&self.one_of).collect();
        if parts.iter().any(|part| part.is_null()) {
            let rest: Vec<Schema> = parts.into_iter().filter(|part| !part.is_null()).cloned().collect();
            return match <[Schema; 1]>::try_from(rest) {
                Ok([one]) => (one, true),
                Err(rest) => {
                    (Schema { description: self.description.clone(), any_of: rest, ..Self::default() }, true)
                }
            };
        }
        if self.types.0.len() > 1 && self.types.0.iter().any(|name| name == "null") {
            let mut bare = self.clone();
            bare.types.0.retain(|name| name != "null");
            bare.values.retain(|value| !value.is_null());
            return (bare, true);
        }
        (self.clone(), false)
    }

    pub(crate) fn is(&self, name: &str) -> bool {
        self.types.0 == [name]
    }

    pub(crate) fn target(&self) -> Option<&str> {
        self.reference.as_deref().and_then(|path| path.rsplit('/').next())
    }

    pub(crate) fn elements(&self) -> Option<&Schema> {
        match &self.additional_properties {
            Some(Additional::Schema(schema)) => Some(schema),
            _ => None,
        }
    }

    /// The texts of an enum.
    pub(crate) fn texts(&self) -> Vec<&str> {
        self.values.iter().filter_map(Value::as_str).collect()
    }

    pub(crate) fn is_union_of_objects(&self) -> bool {
        !self.one_of.is_empty() && self.one_of.iter().all(|part| !part.properties.0.is_empty())
    }
}

#[derive(Debug, Default, serde::Deserialize)]
#[serde(default)]
pub(crate) struct Body {
    pub(crate) content: BTreeMap<String, Media>,
}

#[derive(Debug, Default, serde::Deserialize)]
#[serde(default)]
pub(crate) struct Media {
    pub(crate) schema: Schema,
}

#[derive(Debug, serde::Deserialize)]
pub(crate) struct Parameter {
    pub(crate) name: String,
    #[serde(rename = "in")]
    pub(crate) place: String,
    #[serde(default)]
    pub(crate) description: String,
    #[serde(default)]
    pub(crate) schema: Schema,
}

#[derive(Debug, Default, serde::Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Operation {
    pub(crate) operation_id: String,
    pub(crate) parameters: Vec<Parameter>,
    pub(crate) security: Vec<BTreeMap<String, Value>>,
    pub(crate) request_body: Body,
    pub(crate) responses: BTreeMap<String, Body>,
}

#[derive(Debug, serde::Deserialize)]
pub(crate) struct Components {
    pub(crate) schemas: Ordered<Schema>,
}

#[derive(Debug, serde::Deserialize)]
pub(crate) struct Document {
    pub(crate) paths: Ordered<Ordered<Operation>>,
    pub(crate) components: Components,
}
