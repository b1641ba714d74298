//! Members that may be written in more than one form. Written by hand, since serde's `untagged`
//! loses the path of an error and says no more than that no form fitted.

use serde::de::value::{MapAccessDeserializer, StrDeserializer};
use serde::de::{self, Deserialize, Deserializer, MapAccess, Visitor};
use std::{fmt, marker::PhantomData};

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

impl<'de, W: Deserialize<'de>, M: Deserialize<'de>> Deserialize<'de> for WordOr<W, M> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Forms<W, M>(PhantomData<(W, M)>);
        impl<'de, W: Deserialize<'de>, M: Deserialize<'de>> Visitor<'de> for Forms<W, M> {
            type Value = WordOr<W, M>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("one of its words or an object")
            }
            fn visit_str<E: de::Error>(self, word: &str) -> Result<Self::Value, E> {
                W::deserialize(StrDeserializer::new(word)).map(WordOr::Word)
            }
            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
                M::deserialize(MapAccessDeserializer::new(map)).map(WordOr::Object)
            }
        }
        deserializer.deserialize_any(Forms(PhantomData))
    }
}

/// A version as a string, or as a whole number that is read as its digits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SchemaVersion(pub String);

impl<'de> Deserialize<'de> for SchemaVersion {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Version;
        impl Visitor<'_> for Version {
            type Value = SchemaVersion;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string or a whole number, such as \"2\"")
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<SchemaVersion, E> {
                Ok(SchemaVersion(text.to_owned()))
            }
            fn visit_u64<E: de::Error>(self, n: u64) -> Result<SchemaVersion, E> {
                Ok(SchemaVersion(n.to_string()))
            }
        }
        deserializer.deserialize_any(Version)
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

/// Tells null (`Some(None)`) from absence (`None`).
pub(super) fn present<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Option<String>>, D::Error> {
    Option::deserialize(deserializer).map(Some)
}
