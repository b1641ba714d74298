//! Configuration: bytes from the host in, a [`Plan`] or a list of good errors out.
//!
//! | step | file |
//! |---|---|
//! | bytes to a value: JSON text, or `google.protobuf.Struct` as Envoy delivers it | `json`, `struct_pb` |
//! | value to the model "as written", with every structural error | `read`, `explain`, [`model`], `forms`, [`duration`], [`size`] |
//! | single members that are impossible | `validate` |
//! | model and defaults to the plan | `compile`, `classes` |
//! | members that contradict each other, rules that shadow each other | `validate` |
//! | what an edit does to operations that already exist | [`diff`] |
//!
//! Errors ([`ConfigErrors`]) name the place, the problem and the remedy, all in one go.

mod classes;
mod compile;
pub mod diff;
pub mod duration;
mod error;
mod explain;
mod forms;
mod json;
mod matching;
pub mod model;
mod read;
#[cfg(feature = "schema")]
mod schema;
pub mod size;
mod struct_pb;
#[cfg(test)]
mod tests;
mod validate;

pub use error::{ConfigError, ConfigErrors, secret_part};
pub use forms::{SchemaVersion, WordOr};
#[cfg(feature = "schema")]
pub use schema::schema;

use crate::plan::Plan;
use error::Report;
use serde_json::Value;

/// The least that works, shown where nothing was configured.
pub const MINIMAL: &str = "\
store: { shared_data: {} }
tenant: { sources: [{ header: x-tenant-id }], default: public }
routes:
  - id: charges
    match: { methods: [POST], path: { prefix: /v1/charges } }
";

/// Reads what the host delivered: JSON text, or the wire bytes of a `google.protobuf.Struct`.
///
/// # Errors
/// Everything that is wrong with the configuration.
pub fn parse(bytes: &[u8]) -> Result<Plan, ConfigErrors> {
    if bytes.trim_ascii().is_empty() {
        return Err(empty());
    }
    if struct_pb::is_struct(bytes) {
        let value = struct_pb::decode(bytes).map_err(|(path, problem)| {
            let path = error::redacted(path);
            ConfigErrors::one(
                &path,
                if path.is_empty() {
                    format!("the bytes are no google.protobuf.Struct ({problem})")
                } else {
                    problem
                },
                "write the plugin's configuration as a google.protobuf.Struct or as JSON in a StringValue",
            )
        })?;
        return parse_value(value);
    }
    let value = json::read(bytes).map_err(|e| {
        ConfigErrors::one(
            "",
            format!("the text is not JSON ({e})"),
            "write JSON, or plain YAML under \"@type\": type.googleapis.com/google.protobuf.Struct",
        )
    })?;
    parse_value(value)
}

/// JSON text as a value, read as strictly as a configuration is: a member that is there twice is an
/// error.
///
/// # Errors
/// What is not JSON, with line and column.
pub fn json_value(bytes: &[u8]) -> Result<Value, String> {
    json::read(bytes)
}

/// Reads a configuration that is a value already, such as one from YAML.
///
/// # Errors
/// Everything that is wrong with the configuration.
pub fn parse_value(mut value: Value) -> Result<Plan, ConfigErrors> {
    let is_empty = match &value {
        Value::Null => true,
        Value::Object(members) => members.is_empty(),
        _ => false,
    };
    if is_empty {
        return Err(empty());
    }
    let mut report = Report::default();
    let config = if json::tidy(&mut value, &mut report) {
        read::read(&value, &mut report)
    } else {
        None
    };
    if let Some(config) = config {
        validate::members(&config, &mut report);
        let plan = compile::plan(&config);
        validate::plan(&plan, &config, &mut report);
        if report.is_clean() {
            return Ok(plan);
        }
    }
    Err(report.into_errors())
}

fn empty() -> ConfigErrors {
    ConfigErrors::one(
        "",
        "the configuration is empty",
        format!("the least that works is:\n{MINIMAL}"),
    )
}
