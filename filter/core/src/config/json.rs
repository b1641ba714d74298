//! JSON text into a value, a little stricter than `serde_json::Value` reads it, and the tidying
//! that makes a value from JSON, YAML and `Struct` bytes the same.

use super::error::{Report, index, join};
use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};
use std::fmt;

/// Deeper than any configuration; bounds recursion where the caller made the value.
const MAX_DEPTH: usize = 32;
/// The last whole number up to which doubles are exact (RFC 8259 §6).
const MAX_SAFE: u64 = super::size::MAX;

/// Reads JSON text. A member that is there twice is an error: `serde_json` would keep the last in
/// silence, and the operator may be looking at the first.
///
/// # Errors
/// What is wrong, and where.
pub(super) fn read(bytes: &[u8]) -> Result<Value, String> {
    // From text, as everywhere here: `serde_json` is compiled once per kind of source.
    let text = std::str::from_utf8(bytes).map_err(|e| e.to_string())?;
    let mut deserializer = serde_json::Deserializer::from_str(text);
    let read = Unique.deserialize(&mut deserializer);
    let whole = read.and_then(|value| deserializer.end().map(|()| value));
    whole.map_err(|e| e.to_string())
}

struct Unique;

impl<'de> DeserializeSeed<'de> for Unique {
    type Value = Value;
    fn deserialize<D: Deserializer<'de>>(self, d: D) -> Result<Value, D::Error> {
        d.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Unique {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }
    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }
    fn visit_bool<E: Error>(self, b: bool) -> Result<Value, E> {
        Ok(Value::Bool(b))
    }
    fn visit_i64<E: Error>(self, n: i64) -> Result<Value, E> {
        Ok(Value::from(n))
    }
    fn visit_u64<E: Error>(self, n: u64) -> Result<Value, E> {
        Ok(Value::from(n))
    }
    fn visit_f64<E: Error>(self, n: f64) -> Result<Value, E> {
        Ok(Value::from(n))
    }
    fn visit_str<E: Error>(self, s: &str) -> Result<Value, E> {
        Ok(Value::from(s))
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Value, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = seq.next_element_seed(Unique)? {
            items.push(item);
        }
        Ok(Value::Array(items))
    }
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let mut members = Map::new();
        while let Some(name) = map.next_key::<String>()? {
            if members.contains_key(&name) {
                // The name is not shown: it could stand under `signing`. Line and column are.
                return Err(A::Error::custom("the same member twice"));
            }
            let member = map.next_value_seed(Unique)?;
            members.insert(name, member);
        }
        Ok(Value::Object(members))
    }
}

/// Makes numbers and nulls mean the same whatever form the configuration came in: a double without
/// a fraction is an integer, an integer that doubles cannot carry is refused, and so is a null
/// except where it has a meaning (`key.body_field`).
///
/// Returns false where the value is nested too deeply to be looked at.
pub(super) fn tidy(value: &mut Value, report: &mut Report) -> bool {
    let fits = depth_fits(value, MAX_DEPTH);
    if fits {
        tidy_at(value, "", report);
    } else {
        report.push(
            "",
            format!("the configuration is nested deeper than {MAX_DEPTH} levels"),
            "no part of it goes deeper than 8",
        );
    }
    fits
}

fn depth_fits(value: &Value, left: usize) -> bool {
    let Some(left) = left.checked_sub(1) else {
        return false;
    };
    match value {
        Value::Array(items) => items.iter().all(|v| depth_fits(v, left)),
        Value::Object(members) => members.values().all(|v| depth_fits(v, left)),
        _ => true,
    }
}

fn tidy_at(value: &mut Value, path: &str, report: &mut Report) {
    match value {
        Value::Number(n) => match exact(n) {
            Some(exact) => *n = exact,
            None => {
                report.unreadable(
                    path.to_owned(),
                    "is beyond the numbers that are carried exactly".into(),
                    format!("write at most {MAX_SAFE}, or a string where one is allowed"),
                );
                *n = Number::from(0);
            }
        },
        Value::Array(items) => {
            for (at, item) in items.iter_mut().enumerate() {
                tidy_at(item, &index(path, at), report);
            }
        }
        Value::Object(members) => {
            members.retain(|name, member| {
                let path = join(path, name);
                let keep = !member.is_null() || path.ends_with("key.body_field");
                if !keep {
                    report.unreadable(path, "is null".into(), null_remedy(name).into());
                }
                keep
            });
            for (name, member) in members.iter_mut() {
                tidy_at(member, &join(path, name), report);
            }
        }
        Value::Null | Value::Bool(_) | Value::String(_) => {}
    }
}

fn null_remedy(name: &str) -> &'static str {
    match name {
        "header" => "the header cannot be switched off: give a name, or leave the line out",
        _ => "give a value, or leave the line out for the default",
    }
}

fn exact(n: &Number) -> Option<Number> {
    if let Some(u) = n.as_u64() {
        return (u <= MAX_SAFE).then(|| n.clone());
    }
    if let Some(i) = n.as_i64() {
        return (i.unsigned_abs() <= MAX_SAFE).then(|| n.clone());
    }
    let f = n.as_f64()?;
    if f.fract() != 0.0 {
        return Some(n.clone());
    }
    // Within the bound the conversion is exact; `-0.0` becomes 0.
    #[allow(clippy::cast_possible_truncation, clippy::cast_precision_loss)]
    (f.abs() <= MAX_SAFE as f64).then(|| {
        let whole = f as i64;
        u64::try_from(whole).map_or_else(|_| Number::from(whole), Number::from)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    #[test]
    fn a_member_twice_is_refused_without_its_name() {
        let error = read(b"{\"signing\":{\"s3cret\":1,\n\"s3cret\":2}}").unwrap_err();
        assert!(error.to_string().contains("line 2"), "{error}");
        assert!(!error.to_string().contains("s3cret"), "{error}");
    }

    #[test]
    fn trailing_text_and_deep_nesting_are_refused() {
        assert!(read(b"{} {}").is_err());
        assert!(read("[".repeat(10_000).as_bytes()).is_err());
        assert_eq!(
            read(br#"{"a":[1,-1,0.5,true,null,"x"]}"#).unwrap(),
            json!({"a":[1,-1,0.5,true,null,"x"]})
        );
    }

    #[test]
    fn numbers_mean_the_same_in_every_form() {
        let mut report = Report::default();
        let mut value = json!({"a": 3.0, "b": -2.0, "c": 0.5, "d": -0.0});
        assert!(tidy(&mut value, &mut report));
        assert_eq!(value, json!({"a": 3, "b": -2, "c": 0.5, "d": 0}));
        assert!(report.is_clean());
        for odd in [json!(9_007_199_254_740_992_u64), json!(1e300), json!(-1e19)] {
            let mut report = Report::default();
            tidy(&mut json!({ "a": odd }), &mut report);
            assert_eq!(report.into_errors().errors()[0].path, "a");
        }
    }

    #[test]
    fn nulls_are_refused_where_they_mean_nothing() {
        let mut report = Report::default();
        let mut value = json!({"key": {"body_field": null, "header": null}, "lease": null});
        tidy(&mut value, &mut report);
        assert_eq!(value, json!({"key": {"body_field": null}}));
        let errors = report.into_errors();
        let paths: Vec<_> = errors.errors().iter().map(|e| e.path.as_str()).collect();
        assert_eq!(paths, ["lease", "key.header"]);
    }

    #[test]
    fn a_value_of_any_depth_is_survived() {
        let mut value = json!(1);
        for _ in 0..60 {
            value = json!([value]);
        }
        let mut report = Report::default();
        assert!(!tidy(&mut value, &mut report));
        assert!(!report.is_clean());
    }
}
