//! `google.protobuf.Struct` on the wire, and how it is told from JSON text.
//!
//! Envoy hands a plugin's `configuration` over by its type: a `Struct` as its wire bytes, a
//! `StringValue` as its text. Nothing says which it was, so the bytes must.
//!
//! A `Struct` with members starts with `0x0a` (field 1, length-delimited), which JSON takes for a
//! line feed; its second octet is a length and may well be `0x7b`, which JSON takes for `{`. So "white
//! space, then a brace" does not tell them apart. This does: each member of a `Struct` holds the
//! octet `0x12` (the value's tag in the map entry), and JSON text never holds one, since RFC 8259 §7
//! wants control characters escaped. Text that starts with `{` at once is JSON in any case: as a
//! tag, `0x7b` would open a group, which `Struct` does not have.

use super::error::{index, join};
use prost::Message as _;
use prost_types::{Struct, value::Kind};
use serde_json::{Map, Number, Value};

/// The tag of a map entry's value: field 2, length-delimited.
const ENTRY_VALUE_TAG: u8 = 0x12;
/// The tag of a `Struct`'s member: field 1, length-delimited.
const MEMBER_TAG: u8 = 0x0a;

/// Whether these bytes can only be a `Struct`.
pub(super) fn is_struct(bytes: &[u8]) -> bool {
    bytes.first() == Some(&MEMBER_TAG) && bytes.contains(&ENTRY_VALUE_TAG)
}

/// Decodes wire bytes into the JSON value that they stand for.
///
/// # Errors
/// (path, problem). Depth is bounded by prost (100 messages).
pub(super) fn decode(bytes: &[u8]) -> Result<Value, (String, String)> {
    let decoded = Struct::decode(bytes).map_err(|e| (String::new(), e.to_string()))?;
    object(decoded, "")
}

fn object(from: Struct, path: &str) -> Result<Value, (String, String)> {
    let mut members = Map::new();
    for (name, member) in from.fields {
        let member = value(member, &join(path, &name))?;
        members.insert(name, member);
    }
    Ok(Value::Object(members))
}

fn value(from: prost_types::Value, path: &str) -> Result<Value, (String, String)> {
    match from.kind {
        Some(Kind::NullValue(_)) => Ok(Value::Null),
        Some(Kind::BoolValue(b)) => Ok(Value::Bool(b)),
        Some(Kind::StringValue(s)) => Ok(Value::String(s)),
        Some(Kind::NumberValue(n)) => Number::from_f64(n)
            .map(Value::Number)
            .ok_or_else(|| (path.to_owned(), "is not a finite number".to_owned())),
        Some(Kind::StructValue(s)) => object(s, path),
        Some(Kind::ListValue(list)) => {
            let items: Result<Vec<_>, _> = list
                .values
                .into_iter()
                .enumerate()
                .map(|(at, item)| value(item, &index(path, at)))
                .collect();
            items.map(Value::Array)
        }
        None => Err((path.to_owned(), "has a value without a kind".to_owned())),
    }
}

/// The other direction, for tests.
#[cfg(test)]
pub(super) fn encode(from: &Value) -> Vec<u8> {
    fn to_struct(members: &Map<String, Value>) -> Struct {
        Struct {
            fields: members
                .iter()
                .map(|(k, v)| (k.clone(), to_value(v)))
                .collect(),
        }
    }
    fn to_value(from: &Value) -> prost_types::Value {
        let kind = match from {
            Value::Null => Kind::NullValue(0),
            Value::Bool(b) => Kind::BoolValue(*b),
            Value::Number(n) => Kind::NumberValue(n.as_f64().unwrap()),
            Value::String(s) => Kind::StringValue(s.clone()),
            Value::Array(items) => Kind::ListValue(prost_types::ListValue {
                values: items.iter().map(to_value).collect(),
            }),
            Value::Object(members) => Kind::StructValue(to_struct(members)),
        };
        prost_types::Value { kind: Some(kind) }
    }
    to_struct(from.as_object().unwrap()).encode_to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    #[test]
    fn a_struct_may_look_like_a_line_feed_and_a_brace() {
        // One member whose entry is 0x7b octets long.
        let filler = "x".repeat(115);
        let bytes = encode(&json!({ "ns": filler }));
        assert_eq!(bytes.get(..3), Some(&[0x0a, 0x7b, 0x0a][..]));
        assert!(is_struct(&bytes));
        assert_eq!(decode(&bytes), Ok(json!({ "ns": filler })));
    }

    /// The minimal configuration as protobuf's own runtime writes it.
    const FOREIGN: &str = "0a6a0a06726f757465731260325e0a5c2a5a0a0f0a02696412091a07636861726765730a470a056d\
        61746368123e2a3c0a150a076d6574686f6473120a32080a061a04504f53540a230a0470617468121b2a190a170a06707265\
        666978120d1a0b2f76312f636861726765730a1e0a0573746f726512152a130a110a0b7368617265645f6461746112022a00\
        0a4d0a0674656e616e7412432a410a130a0764656661756c7412081a067075626c69630a2a0a07736f7572636573121f321d\
        0a1b2a190a170a06686561646572120d1a0b782d74656e616e742d6964";

    #[test]
    fn bytes_of_another_encoder_are_read() {
        let bytes = hex::decode(FOREIGN).unwrap();
        assert!(is_struct(&bytes));
        let expected = json!({
            "store": {"shared_data": {}},
            "tenant": {"sources": [{"header": "x-tenant-id"}], "default": "public"},
            "routes": [{"id": "charges", "match": {"methods": ["POST"], "path": {"prefix": "/v1/charges"}}}],
        });
        assert_eq!(decode(&bytes), Ok(expected));
        assert!(crate::config::parse(&bytes).is_ok());
    }

    #[test]
    fn json_text_is_never_taken_for_a_struct() {
        for text in [
            "{}",
            "\n{}",
            "\n \t{\"a\":\"\\u0012\"}",
            "{\"a\":\"\u{12}\"}",
            "",
            "\n",
        ] {
            assert!(!is_struct(text.as_bytes()), "{text:?}");
        }
    }

    #[test]
    fn nesting_is_bounded() {
        let mut deep = json!(1);
        for _ in 0..200 {
            deep = json!([deep]);
        }
        assert!(decode(&encode(&json!({ "a": deep }))).is_err());
    }

    #[test]
    fn numbers_must_be_finite_and_values_must_have_a_kind() {
        for kind in [Some(Kind::NumberValue(f64::NAN)), None] {
            let fields = [("a".to_owned(), prost_types::Value { kind })].into();
            let (path, _) = decode(&Struct { fields }.encode_to_vec()).unwrap_err();
            assert_eq!(path, "a");
        }
    }
}
