//! The JSON Schema of the configuration, made from the model, for editors and for `idempo check`.
//!
//! It says what has the right shape; what is impossible or contradictory only [`super::parse`] knows.

use super::model::Config;
use serde_json::{Value, json};

/// What must be written, by type; the model has every member optional, so that the parser can tell
/// all that is missing at once.
const REQUIRED: [(&str, &[&str]); 13] = [
    ("Route", &["id", "match"]),
    ("Previous", &["id"]),
    ("Metadata", &["filter", "path"]),
    ("BodyMatch", &["pointer", "exact"]),
    ("Redis", &["cluster", "transport"]),
    ("Login", &["password"]),
    ("Signing", &["active"]),
    ("EnvSecret", &["env"]),
    ("RouterRetriesMap", &["allow"]),
    ("Allow", &["reason"]),
    ("Forward", &["upstream_dedupes"]),
    ("Retry", &["i_accept_duplicates"]),
    ("KeyTimeMap", &["deadline_header"]),
];
/// Of which exactly one member must be written.
const ONE_OF: [&str; 4] = ["Store", "Source", "PathMatch", "UnknownMap"];

/// The schema, as checked in at `docs/config.schema.json`.
#[must_use]
pub fn schema() -> Value {
    let mut schema = schemars::schema_for!(Config).to_value();
    refuse_null(&mut schema);
    let mut set = |pointer: String, name: &str, value: Value| {
        if let Some(Value::Object(members)) = schema.pointer_mut(&pointer) {
            members.insert(name.to_owned(), value);
        }
    };
    set(String::new(), "title", json!("idempo configuration"));
    set(String::new(), "required", json!(["store", "routes"]));
    set("/properties/routes".into(), "minItems", json!(1));
    set(
        "/$defs/Key/properties/body_field".into(),
        "default",
        json!("/idempotency_key"),
    );
    for (name, members) in REQUIRED {
        set(format!("/$defs/{name}"), "required", json!(members));
    }
    for name in ONE_OF {
        set(format!("/$defs/{name}"), "minProperties", json!(1));
        set(format!("/$defs/{name}"), "maxProperties", json!(1));
    }
    schema
}

/// schemars allows null for each `Option`; the parser refuses it, but for `body_field`.
fn refuse_null(schema: &mut Value) {
    match schema {
        Value::Object(members) => {
            let nullable = |name: &str| name == "body_field";
            for (_, member) in members.iter_mut().filter(|(name, _)| !nullable(name)) {
                refuse_null(member);
            }
            if let Some(Value::Array(types)) = members.get_mut("type") {
                types.retain(|t| t != "null");
                if let [only] = types.as_slice() {
                    let only = only.clone();
                    members.insert("type".into(), only);
                }
            }
            if let Some(Value::Array(forms)) = members.get_mut("anyOf") {
                forms.retain(|f| f.get("type").is_none_or(|t| t != "null"));
                if let [Value::Object(only)] = forms.as_slice() {
                    let only = only.clone();
                    members.remove("anyOf");
                    members.extend(only);
                }
            }
            // `serde(default)` writes null for what is left out; the comments say the defaults.
            if members.get("default").is_some_and(Value::is_null) {
                members.remove("default");
            }
        }
        Value::Array(items) => items.iter_mut().for_each(refuse_null),
        _ => {}
    }
}

#[cfg(all(test, not(target_arch = "wasm32")))]
mod tests {
    use super::*;

    const PATH: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/config.schema.json");

    /// Refreshes the file where `IDEMPO_REFRESH` is set.
    #[test]
    fn the_checked_in_schema_is_fresh() {
        let fresh = serde_json::to_string_pretty(&schema()).unwrap() + "\n";
        if std::env::var_os("IDEMPO_REFRESH").is_some() {
            std::fs::write(PATH, &fresh).unwrap();
        }
        let kept = std::fs::read_to_string(PATH).unwrap_or_default();
        assert!(
            kept == fresh,
            "docs/config.schema.json is stale; refresh it with\n  IDEMPO_REFRESH=1 cargo test -p idempo-core --features schema schema"
        );
    }

    /// A field that the reference does not name is a field that nobody finds.
    #[test]
    fn the_reference_names_every_field() {
        let reference = include_str!("../../../../docs/configuration.md");
        assert!(reference.contains(super::super::MINIMAL));
        let schema = schema();
        let definitions = schema["$defs"].as_object().unwrap();
        for (of, definition) in definitions.iter().chain([(&"Config".to_owned(), &schema)]) {
            for name in definition["properties"]
                .as_object()
                .into_iter()
                .flatten()
                .map(|(n, _)| n)
            {
                let told = [
                    format!("`{name}"),
                    format!(".{name}`"),
                    format!("{{{name}"),
                    format!(" {name}"),
                ];
                assert!(told.iter().any(|t| reference.contains(t)), "{of}.{name}");
            }
        }
    }

    #[test]
    fn null_is_allowed_for_the_body_field_alone() {
        let text = serde_json::to_string(&schema()).unwrap();
        assert_eq!(text.matches("\"null\"").count(), 1, "{text}");
        assert!(!text.contains("\"default\":null"), "{text}");
    }

    #[test]
    fn every_object_refuses_unknown_members() {
        let schema = schema();
        let definitions = schema["$defs"].as_object().unwrap();
        for (name, definition) in definitions.iter().chain([(&"Config".to_owned(), &schema)]) {
            if definition["type"] == "object" {
                assert_eq!(definition["additionalProperties"], false, "{name}");
            }
        }
        for (name, members) in REQUIRED {
            let of = definitions[name]["properties"].as_object().unwrap();
            assert!(members.iter().all(|m| of.contains_key(*m)), "{name}");
        }
        for name in ONE_OF {
            assert_eq!(definitions[name]["maxProperties"], 1, "{name}");
        }
        assert_eq!(schema["required"], serde_json::json!(["store", "routes"]));
    }
}
