//! Durations as Envoy writes them: the JSON form of `google.protobuf.Duration`, seconds with an
//! `s`, such as `"172800s"` or `"0.5s"`. Nothing else is taken (`"5m"` or a bare 30 would be read
//! one way by one person and otherwise by the next); the error says how it is written.

use super::error::quote;
use super::read::{Fault, Read, Reader};
use serde_json::Value;

/// Ten years of 365 days: anything longer is a slip of the hand.
pub const MAX_MS: u64 = 315_360_000_000;

/// Milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Millis(pub u64);

const EXAMPLE: &str = "write seconds with an s, such as \"30s\" or \"0.5s\"";

/// Milliseconds in Envoy's form.
#[must_use]
pub fn show(ms: u64) -> String {
    match (ms / 1000, ms % 1000) {
        (seconds, 0) => format!("{seconds}s"),
        (seconds, rest) => {
            let fraction = format!("{rest:03}");
            format!("{seconds}.{}s", fraction.trim_end_matches('0'))
        }
    }
}

/// Reads a duration; the error is (problem, remedy).
///
/// # Errors
/// Other forms than seconds with an `s`, negative or above ten years, finer than a millisecond.
pub fn parse(text: &str) -> Result<Millis, (String, String)> {
    let wrong = |what: &str, remedy: String| Err((format!("{} {what}", quote(text)), remedy));
    let Some(number) = text.strip_suffix('s').filter(|n| is_decimal(n)) else {
        if text.starts_with('-') {
            return wrong("is negative", EXAMPLE.into());
        }
        return wrong("is not a duration", in_seconds(text));
    };
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let fraction = fraction.trim_end_matches('0');
    if fraction.len() > 3 {
        return wrong(
            "is finer than a millisecond",
            "write three decimals at most, such as \"0.001s\"".into(),
        );
    }
    // `is_decimal` leaves only digits, so what fails to parse is out of range.
    let ms = whole
        .parse::<u64>()
        .ok()
        .and_then(|s| s.checked_mul(1000))
        .and_then(|ms| ms.checked_add(format!("{fraction:0<3}").parse().ok()?))
        .filter(|ms| *ms <= MAX_MS);
    match ms {
        Some(ms) => Ok(Millis(ms)),
        None => wrong(
            "is longer than ten years",
            format!("write {} or less", quote(&show(MAX_MS))),
        ),
    }
}

fn is_decimal(text: &str) -> bool {
    let digits = |t: &str| !t.is_empty() && t.bytes().all(|b| b.is_ascii_digit());
    match text.split_once('.') {
        Some((whole, fraction)) => digits(whole) && digits(fraction) && fraction.len() <= 9,
        None => digits(text),
    }
}

/// The remedy for what was probably meant.
fn in_seconds(text: &str) -> String {
    let at = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    let Some((count, unit)) = text.split_at_checked(at) else {
        return EXAMPLE.into();
    };
    let factor = match unit.trim() {
        "ms" => Some(1),
        "" | "s" | "sec" | "seconds" => Some(1000),
        "m" | "min" => Some(60_000),
        "h" => Some(3_600_000),
        "d" => Some(86_400_000),
        _ => None,
    };
    match (count.parse::<u64>(), factor) {
        (Ok(count), Some(factor)) => {
            format!("write {}", quote(&show(count.saturating_mul(factor))))
        }
        _ => EXAMPLE.into(),
    }
}

impl Read for Millis {
    fn read<'v>(value: &'v Value, _: &mut Reader<'v>) -> Result<Self, Fault> {
        if let Some(n) = value.as_u64() {
            return Err(Fault::Wrong(
                format!("{n} has no unit"),
                format!("write {}", quote(&format!("{n}s"))),
            ));
        }
        let expected = Fault::Shape("seconds with an s, such as \"30s\" or \"0.5s\"");
        let text = value.as_str().ok_or(expected)?;
        parse(text).map_err(|(problem, remedy)| Fault::Wrong(problem, remedy))
    }
}

#[cfg(feature = "schema")]
impl schemars::JsonSchema for Millis {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Duration".into()
    }
    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({
            "type": "string",
            "description": "Seconds with an `s`, three decimals at most, such as `\"30s\"` or `\"0.5s\"`; ten years at most.",
            "pattern": r"^[0-9]+(\.[0-9]{1,9})?s$",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    #[test]
    fn envoys_form_is_read() {
        for (text, ms) in [
            ("172800s", 172_800_000),
            ("0s", 0),
            ("0.5s", 500),
            ("1.250000000s", 1250),
            ("00030s", 30_000),
            ("315360000s", MAX_MS),
        ] {
            assert_eq!(parse(text), Ok(Millis(ms)), "{text}");
        }
    }

    #[test]
    fn other_forms_are_refused_with_the_right_one() {
        for (text, remedy) in [
            ("250ms", "\"0.25s\""),
            ("5m", "\"300s\""),
            ("48h", "\"172800s\""),
            ("7d", "\"604800s\""),
            ("30", "\"30s\""),
            ("30 s", "\"30s\""),
            ("", "such as"),
            ("s", "such as"),
            (".5s", "such as"),
            ("1.s", "such as"),
            ("1e3s", "such as"),
            ("+1s", "such as"),
            ("1.0000000000s", "such as"),
            ("-1s", "such as"),
            ("0.0005s", "0.001s"),
            ("315360000.001s", "315360000s"),
            ("99999999999999999999999s", "315360000s"),
            ("18446744073709551615s", "315360000s"),
            ("५s", "such as"),
        ] {
            let (_, said) = parse(text).expect_err(text);
            assert!(said.contains(remedy), "{text}: {said}");
        }
    }

    #[test]
    fn shown_forms_read_back() {
        for ms in [0, 1, 10, 250, 1000, 1001, 86_440_000, MAX_MS] {
            assert_eq!(parse(&show(ms)), Ok(Millis(ms)));
        }
        assert_eq!(show(250), "0.25s");
    }
}
