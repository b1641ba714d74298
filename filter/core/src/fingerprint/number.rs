//! Whether a JSON number survives RFC 8785.
//!
//! JCS writes every number as the shortest decimal that names the same IEEE 754 double, so that
//! 9007199254740993 and 9007199254740992 become one text. For a ledger they are two amounts. A
//! document whose literals are not exactly what JCS would write (as decimal values, whatever their
//! spelling) is therefore not canonicalised at all.
//!
//! `-0` and `0` count as one: JCS writes both as `0`, and so does every serialiser of its family.

/// A decimal literal as sign, significant digits and power of ten.
struct Decimal<'a> {
    negative: bool,
    whole: &'a [u8],
    fraction: &'a [u8],
    /// Zeros before the first significant digit, counted over `whole` and `fraction`.
    leading: usize,
    /// Number of significant digits; 0 for zero.
    significant: usize,
    /// The value is 0.d₁d₂d₃… × 10^exponent.
    exponent: i64,
}

impl<'a> Decimal<'a> {
    /// Reads a literal that a JSON parser, or the JCS writer, has already accepted.
    fn new(literal: &'a [u8]) -> Self {
        let (negative, rest) = match literal.split_first() {
            Some((b'-', rest)) => (true, rest),
            _ => (false, literal),
        };
        let mut halves = rest.splitn(2, |b| matches!(b, b'e' | b'E'));
        let mantissa = halves.next().unwrap_or_default();
        let power = halves.next().map_or(0, power);
        let mut halves = mantissa.splitn(2, |b| *b == b'.');
        let whole = halves.next().unwrap_or_default();
        let fraction = halves.next().unwrap_or_default();

        let zero = |b: &&u8| **b == b'0';
        let digits = whole.len().saturating_add(fraction.len());
        let leading = whole.iter().chain(fraction).take_while(zero).count();
        let trailing = whole.iter().chain(fraction).rev().take_while(zero).count();
        let significant = digits.saturating_sub(leading).saturating_sub(trailing);
        let point = i64::try_from(whole.len()).unwrap_or(i64::MAX);
        let before = i64::try_from(leading).unwrap_or(i64::MAX);
        Self {
            negative,
            whole,
            fraction,
            leading,
            significant,
            exponent: power.saturating_add(point).saturating_sub(before),
        }
    }

    fn digits(&self) -> impl Iterator<Item = &u8> {
        self.whole
            .iter()
            .chain(self.fraction)
            .skip(self.leading)
            .take(self.significant)
    }

    fn equals(&self, other: &Self) -> bool {
        if self.significant == 0 || other.significant == 0 {
            return self.significant == other.significant;
        }
        self.negative == other.negative
            && self.exponent == other.exponent
            && self.significant == other.significant
            && self.digits().eq(other.digits())
    }
}

/// The power of ten after `e`, saturating: no finite double comes near either end.
fn power(text: &[u8]) -> i64 {
    let (negative, digits) = match text.split_first() {
        Some((b'-', rest)) => (true, rest),
        Some((b'+', rest)) => (false, rest),
        _ => (false, text),
    };
    let size = digits.iter().fold(0i64, |sum, digit| {
        sum.saturating_mul(10)
            .saturating_add(i64::from(digit.wrapping_sub(b'0')))
    });
    if negative {
        size.saturating_neg()
    } else {
        size
    }
}

/// Whether JCS would write this double as the same decimal value as the literal's. The double is
/// what the JSON parser made of the literal, so that an inexact parser cannot hide a loss either.
pub(super) fn survives(literal: &[u8], value: f64) -> bool {
    if !value.is_finite() {
        return false;
    }
    let mut buffer = ryu_js::Buffer::new();
    let written = buffer.format_finite(value);
    Decimal::new(literal).equals(&Decimal::new(written.as_bytes()))
}

/// The number literals of a JSON text, in order. It looks only at text that a parser has already
/// accepted, so anything outside a string that starts like a number is one.
pub(super) struct Literals<'a> {
    rest: &'a [u8],
}

impl<'a> Literals<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        Self {
            rest: text.as_bytes(),
        }
    }
}

impl<'a> Iterator for Literals<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        while let Some((&byte, after)) = self.rest.split_first() {
            match byte {
                b'"' => self.rest = after_string(after),
                b'-' | b'0'..=b'9' => {
                    let more =
                        |b: &&u8| matches!(b, b'0'..=b'9' | b'+' | b'-' | b'.' | b'e' | b'E');
                    let length = self.rest.iter().take_while(more).count();
                    let (literal, rest) = self.rest.split_at_checked(length)?;
                    self.rest = rest;
                    return Some(literal);
                }
                _ => self.rest = after,
            }
        }
        None
    }
}

/// What follows the closing quote.
fn after_string(mut rest: &[u8]) -> &[u8] {
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        match byte {
            b'"' => break,
            b'\\' => rest = after.get(1..).unwrap_or_default(),
            _ => {}
        }
    }
    rest
}

#[cfg(test)]
mod tests {
    use super::*;
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    fn lossless(literal: &str) -> bool {
        survives(literal.as_bytes(), literal.parse().unwrap())
    }

    #[test]
    fn spellings_of_one_value_survive() {
        for literal in [
            "0",
            "-0",
            "0.0",
            "-0.0e5",
            "0e99999999999999999999",
            "1",
            "1.0",
            "1e0",
            "10e-1",
            "0.1",
            "1e-1",
            "0.10",
            "-12.50",
            "100",
            "1e2",
            "1E+2",
            "9007199254740992",
            "9007199254740991",
            "1e21",
            "1e23",
            "123456789012345680000",
            "1e308",
            "5e-324",
            "1e-7",
            "0.000001",
            "4.50",
            "2e-3",
        ] {
            assert!(lossless(literal), "{literal}");
        }
    }

    #[test]
    fn what_a_double_cannot_hold_does_not() {
        for literal in [
            "9007199254740993",
            "18446744073709551615",
            // A double, but JCS writes only the digits that identify it.
            "18446744073709551616",
            "18446744073709551617",
            "0.10000000000000000001",
            "333333333.33333329",
            "1e400",
            "-1e400",
            "1e-400",
            "1e99999999999999999999",
            "1e-99999999999999999999",
            "3.141592653589793238",
        ] {
            assert!(!lossless(literal), "{literal}");
        }
    }

    #[test]
    fn a_misread_double_does_not_survive() {
        assert!(survives(b"0.3", 0.3));
        assert!(!survives(b"0.3", 0.1 + 0.2));
        assert!(!survives(b"1", -1.0));
        assert!(!survives(b"1", 10.0));
        assert!(!survives(b"1", f64::INFINITY));
    }

    #[test]
    fn literals_are_found_outside_strings_only() {
        let text = r#"{"1":[-2.5e+3,"4\"5\\",6], "\\":true,"7":{"a":8 }}"#;
        let found: Vec<_> = Literals::new(text).collect();
        assert_eq!(found, [&b"-2.5e+3"[..], b"6", b"8"]);
        assert_eq!(Literals::new("\"12").next(), None);
        assert_eq!(Literals::new("\"12\\").next(), None);
    }
}
