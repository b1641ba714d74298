//! Sizes in octets: a whole number, or a number with a binary unit such as `"64MiB"`. Decimal
//! units (`MB`) are refused, since half of their readers take them for binary ones.

use super::error::quote;
use super::read::{Fault, Read, Reader};
use serde_json::Value;

/// The largest size that can be written: 2^53 - 1, the last whole number that survives the
/// doubles in which `google.protobuf.Struct` carries numbers.
pub const MAX: u64 = (1 << 53) - 1;

/// Octets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Size(pub u64);

const UNITS: [(&str, u64); 4] = [("GiB", 30), ("MiB", 20), ("KiB", 10), ("B", 0)];

/// Octets in the largest unit that states them exactly.
#[must_use]
pub fn show(octets: u64) -> String {
    UNITS
        .into_iter()
        .find(|(_, shift)| octets >= 1 << shift && octets.trailing_zeros() >= *shift as u32)
        .map_or_else(
            || format!("{octets}B"),
            |(unit, shift)| format!("{}{unit}", octets >> shift),
        )
}

/// Reads a size; the error is (problem, remedy).
///
/// # Errors
/// Anything but digits with an optional `B`, `KiB`, `MiB` or `GiB`, or more than [`MAX`].
pub fn parse(text: &str) -> Result<Size, (String, String)> {
    let wrong = |what: &str, remedy: &str| Err((format!("{} {what}", quote(text)), remedy.into()));
    let (digits, shift) = UNITS
        .into_iter()
        .find_map(|(unit, shift)| Some((text.strip_suffix(unit)?, shift)))
        .unwrap_or((text, 0));
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return wrong(
            "is not a size",
            "write octets as a whole number, or with KiB, MiB or GiB, such as \"64MiB\"",
        );
    }
    let octets = digits
        .parse::<u64>()
        .ok()
        .and_then(|n| n.checked_mul(1 << shift))
        .filter(|n| *n <= MAX);
    match octets {
        Some(n) => Ok(Size(n)),
        None => wrong("is too large", "write less than 8388608GiB"),
    }
}

impl Read for Size {
    fn read<'v>(value: &'v Value, _: &mut Reader<'v>) -> Result<Self, Fault> {
        if let Some(n) = value.as_u64() {
            return Ok(Self(n));
        }
        let expected =
            Fault::Shape("octets as a whole number, or with KiB, MiB or GiB, such as \"64MiB\"");
        let text = value.as_str().ok_or(expected)?;
        parse(text).map_err(|(problem, remedy)| Fault::Wrong(problem, remedy))
    }
}

#[cfg(feature = "schema")]
impl schemars::JsonSchema for Size {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Size".into()
    }
    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({
            "description": "Octets as a whole number, or with a binary unit, such as `\"64MiB\"`.",
            "oneOf": [
                { "type": "integer", "minimum": 0 },
                { "type": "string", "pattern": "^[0-9]+(B|KiB|MiB|GiB)?$" },
            ],
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    #[test]
    fn binary_units_and_plain_octets() {
        for (text, octets) in [
            ("0", 0),
            ("512", 512),
            ("512B", 512),
            ("64KiB", 65_536),
            ("64MiB", 64 << 20),
            ("2GiB", 2 << 30),
        ] {
            assert_eq!(parse(text), Ok(Size(octets)), "{text}");
        }
    }

    #[test]
    fn ambiguous_and_impossible_sizes_are_refused() {
        for text in [
            "",
            "MiB",
            "64MB",
            "64M",
            "64 MiB",
            "-1",
            "1.5GiB",
            "1e6",
            "64mib",
            "+1",
            "9007199254740992",
            "18446744073709551616",
            "17179869184GiB",
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn shown_sizes_read_back() {
        for octets in [0, 1, 1023, 1024, 1 << 20, (1 << 20) + 1, 5 << 30, MAX] {
            assert_eq!(parse(&show(octets)), Ok(Size(octets)));
        }
        assert_eq!(show(64 << 20), "64MiB");
    }
}
