//! What Envoy makes of a YAML scalar.
//!
//! Envoy reads YAML without a schema (`parseYamlNode` in its `yaml_utility.cc`, on yaml-cpp): plain
//! text that looks like a boolean of YAML 1.1 is one, whole numbers of 32 bits are numbers, larger
//! ones and fractions stay text. So a plain `off` arrives as `false`, and `0.5` as `"0.5"`. A check
//! that read YAML in another way would accept what Envoy's filter refuses.

use serde_json::Value;

/// A scalar as Envoy hands it on, and what about that may surprise whoever wrote it.
pub(crate) struct Scalar {
    pub(crate) value: Value,
    pub(crate) surprise: Option<String>,
}

/// Reads one scalar. `quoted`: in quotes, a block, or tagged `!`.
pub(crate) fn read(text: &str, quoted: bool) -> Scalar {
    if quoted {
        return plain(Value::from(text));
    }
    if matches!(text, "" | "~" | "null" | "Null" | "NULL") {
        return plain(Value::Null);
    }
    if let Some(truth) = boolean(text) {
        let surprise = !matches!(text.to_ascii_lowercase().as_str(), "true" | "false");
        return Scalar {
            value: Value::Bool(truth),
            surprise: surprise.then(|| {
                format!(
                    "Envoy reads a plain {text} as {truth}: put it in quotes where text is meant"
                )
            }),
        };
    }
    if let Some(number) = integer(text) {
        return whole(text, number);
    }
    let fraction = text.parse::<f64>().is_ok_and(f64::is_finite)
        && text
            .bytes()
            .next()
            .is_some_and(|b| !b.is_ascii_alphabetic());
    Scalar {
        value: Value::from(text),
        surprise: fraction.then(|| format!("Envoy hands the plain number {text} on as text")),
    }
}

fn plain(value: Value) -> Scalar {
    Scalar {
        value,
        surprise: None,
    }
}

fn whole(text: &str, number: i64) -> Scalar {
    if i32::try_from(number).is_err() {
        return Scalar {
            value: Value::from(number.to_string()),
            surprise: Some(format!(
                "Envoy hands {text}, which does not fit 32 bits, on as text"
            )),
        };
    }
    let surprise = (number.to_string() != text.trim_start_matches('+'))
        .then(|| format!("Envoy reads a plain {text} as {number}"));
    Scalar {
        value: Value::from(number),
        surprise,
    }
}

/// The words of YAML 1.1, in small letters, capitals, or with one capital first.
fn boolean(text: &str) -> Option<bool> {
    let small = text.to_ascii_lowercase();
    let truth = match small.as_str() {
        "y" | "yes" | "true" | "on" => true,
        "n" | "no" | "false" | "off" => false,
        _ => return None,
    };
    let rest = text.get(1..).unwrap_or_default();
    let cased = text == small
        || text == small.to_ascii_uppercase()
        || rest.bytes().all(|b| b.is_ascii_lowercase());
    cased.then_some(truth)
}

/// A whole number of 64 bits as C++ streams read it: `0x` is hexadecimal, a leading zero octal.
fn integer(text: &str) -> Option<i64> {
    let (negative, digits) = match text.as_bytes().first()? {
        b'-' => (true, text.get(1..)?),
        b'+' => (false, text.get(1..)?),
        _ => (false, text),
    };
    let lower = digits.to_ascii_lowercase();
    let (radix, digits) = match lower.strip_prefix("0x") {
        Some(hex) => (16, hex),
        None if lower.len() > 1 && lower.starts_with('0') => (8, lower.get(1..)?),
        None => (10, lower.as_str()),
    };
    if !digits.bytes().all(|b| b.is_ascii_alphanumeric()) {
        return None;
    }
    let magnitude = i128::from(u64::from_str_radix(digits, radix).ok()?);
    i64::try_from(if negative { -magnitude } else { magnitude }).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn plain_scalars_are_what_envoy_makes_of_them() {
        for (text, value) in [
            ("off", json!(false)),
            ("On", json!(true)),
            ("YES", json!(true)),
            ("n", json!(false)),
            ("oN", json!("oN")),
            ("true", json!(true)),
            ("~", json!(null)),
            ("", json!(null)),
            ("404", json!(404)),
            ("-7", json!(-7)),
            ("0x10", json!(16)),
            ("010", json!(8)),
            ("08", json!("08")),
            ("0", json!(0)),
            ("2147483647", json!(2_147_483_647)),
            ("2147483648", json!("2147483648")),
            ("99999999999999999999", json!("99999999999999999999")),
            ("0.5", json!("0.5")),
            ("1e3", json!("1e3")),
            ("30s", json!("30s")),
            ("-", json!("-")),
            ("+-5", json!("+-5")),
            ("0x-1", json!("0x-1")),
        ] {
            assert_eq!(read(text, false).value, value, "{text:?}");
            assert_eq!(read(text, true).value, json!(text), "{text:?} in quotes");
        }
    }

    #[test]
    fn only_what_may_surprise_is_told() {
        for text in ["off", "y", "0.5", "010", "0x10", "3000000000"] {
            assert!(read(text, false).surprise.is_some(), "{text}");
            assert!(read(text, true).surprise.is_none(), "{text}");
        }
        for text in [
            "true", "False", "7", "-7", "30s", "inf", "nan", "charges", "",
        ] {
            assert!(read(text, false).surprise.is_none(), "{text}");
        }
    }
}
