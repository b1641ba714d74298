//! Members that may be written in more than one form.

use super::read::{Fault, Read, Reader};
use serde_json::Value;

/// A word, or an object that says more.
#[derive(Clone, Debug)]
#[cfg_attr(
    feature = "schema",
    derive(schemars::JsonSchema),
    schemars(untagged, rename = "{W}Or{M}")
)]
pub enum WordOr<W, M> {
    /// The short form.
    Word(W),
    /// The long form.
    Object(M),
}

impl<W: Read, M: Read> Read for WordOr<W, M> {
    fn read<'v>(value: &'v Value, reader: &mut Reader<'v>) -> Result<Self, Fault> {
        match value {
            Value::String(_) => W::read(value, reader).map(Self::Word),
            Value::Object(_) => M::read(value, reader).map(Self::Object),
            _ => Err(Fault::Shape("one of its words or an object")),
        }
    }
}

/// A version as a string, or as a whole number that is read as its digits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SchemaVersion(pub String);

impl Read for SchemaVersion {
    fn read<'v>(value: &'v Value, _: &mut Reader<'v>) -> Result<Self, Fault> {
        let digits = || value.as_u64().map(|n| n.to_string());
        let text = value.as_str().map(ToOwned::to_owned).or_else(digits);
        let expected = Fault::Shape("a string or a whole number, such as \"2\"");
        text.map(Self).ok_or(expected)
    }
}

#[cfg(feature = "schema")]
impl schemars::JsonSchema for SchemaVersion {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "SchemaVersion".into()
    }
    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({
            "oneOf": [
                { "type": "integer", "minimum": 0 },
                { "type": "string", "minLength": 1, "maxLength": 64 },
            ],
        })
    }
}
