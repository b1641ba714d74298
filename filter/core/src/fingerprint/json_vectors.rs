//! RFC 8785 as a suite: documents of our own that cover what the published suite covers, the published suite
//! itself where it is at hand, and the writing of numbers against a second implementation.

use super::*;
use std::path::{Path, PathBuf};

fn text_of(node: &Node<'_>) -> String {
    let mut out = Vec::new();
    write(node, &mut out);
    String::from_utf8(out).unwrap()
}

/// The ground of the published suite: arrays, names in another language's order, structures, text that
/// is not normalised, values, and names that sort in odd places.
#[test]
fn own_documents() {
    for (text, expected) in [
        // Elements keep their order, members don't; nesting and empty ones of both.
        (
            "[ 7, \"x\", {\"z\": [ ], \"a\":{ } }, null , [[ [true]]] ]",
            "[7,\"x\",{\"a\":{},\"z\":[]},null,[[[true]]]]",
        ),
        // By UTF-16 units, in no language's order: all accented letters after z.
        (
            "{\"zo\u{eb}\":1,\"zoe\":2,\"\u{e9}t\u{e9}\":3,\"ete\":4,\"Ete\":5,\"c\u{f4}te\":6,\"cote\":7}",
            "{\"Ete\":5,\"cote\":7,\"c\u{f4}te\":6,\"ete\":4,\"zoe\":2,\"zo\u{eb}\":1,\"\u{e9}t\u{e9}\":3}",
        ),
        // Names that look like numbers are text; the empty name is the first; a prefix comes before.
        (
            r#"{"10":{"b":[],"B":{}},"9":"nine","":"none","1":{"a b":1,"a":2},"111":0}"#,
            r#"{"":"none","1":{"a":2,"a b":1},"10":{"B":{},"b":[]},"111":0,"9":"nine"}"#,
        ),
        // A letter and its combining mark stay two, composed and not are different names.
        (
            r#"{"A\u030a":1,"\u00c5":2,"\u212b":3}"#,
            "{\"A\u{30a}\":1,\"\u{c5}\":2,\"\u{212b}\":3}",
        ),
        // Every escape that there is, and no more than is needed.
        (
            r#"{"s":"\u0000\u0007\b\t\n\u000b\f\r\u001f\"\\\/\u002f\u007f\u0080\u2028\u20ac"}"#,
            "{\"s\":\"\\u0000\\u0007\\b\\t\\n\\u000b\\f\\r\\u001f\\\"\\\\//\u{7f}\u{80}\u{2028}\u{20ac}\"}",
        ),
        (
            "[true,false,null,4.50,2e-3,0.000000000000000000000000001,1E3,123456789012345680000]",
            "[true,false,null,4.5,0.002,1e-27,1000,123456789012345680000]",
        ),
        // Control characters, letters, a surrogate pair and what lies above the surrogates as names.
        (
            "{\"\u{20ac}\":1,\"\\r\":2,\"\u{fb33}\":3,\"1\":4,\"\u{1f600}\":5,\"\\u0080\":6,\"\u{f6}\":7,\"</script>\":8}",
            "{\"\\r\":2,\"1\":4,\"</script>\":8,\"\u{80}\":6,\"\u{f6}\":7,\"\u{20ac}\":1,\"\u{1f600}\":5,\"\u{fb33}\":3}",
        ),
    ] {
        let node = parse(text.as_bytes()).unwrap_or_else(|| panic!("{text}"));
        assert_eq!(text_of(&node), expected, "{text}");
        let again = parse(expected.as_bytes()).unwrap();
        assert_eq!(text_of(&again), expected, "its own canonical form");
    }
}

/// The published suite, where it is at hand: it is not ours to copy.
#[test]
fn published_documents() {
    let base = std::env::var_os("IDEMPO_VECTORS").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/vectors"),
        PathBuf::from,
    );
    let Ok(inputs) = std::fs::read_dir(base.join("jcs/input")) else {
        println!("no published RFC 8785 suite here: own documents only");
        return;
    };
    let mut seen = 0;
    for input in inputs {
        let input = input.unwrap().path();
        let name = input.file_stem().unwrap().to_owned();
        let hex_file = base.join("jcs/outhex").join(name).with_extension("txt");
        let digits: String = std::fs::read_to_string(hex_file)
            .unwrap()
            .split_whitespace()
            .collect();
        // `values.json` holds 333333333.33333329, which JCS rounds: its text is right, and the
        // document is still not taken for canonical.
        let octets = std::fs::read(&input).unwrap();
        let (node, exact) = read(&octets).unwrap();
        assert_eq!(hex::encode(text_of(&node)), digits, "{input:?}");
        assert_eq!(exact, !input.ends_with("values.json"), "{input:?}");
        seen += 1;
    }
    assert!(seen > 0, "a folder of vectors without vectors");
}

/// ECMAScript's `Number::toString` (ECMA-262 §6.1.6.1.20), step by step, over digits that the standard
/// library finds by algorithms of its own: how many are needed by the one for shortest digits, and which, by
/// the one for exact digits. The first rounds a tie up, ECMAScript and the second to even.
fn number_to_string(value: f64) -> String {
    if value == 0.0 {
        return "0".to_owned();
    }
    let sign = if value < 0.0 { "-" } else { "" };
    let shortest = format!("{:e}", value.abs());
    let count = shortest.split('e').next().unwrap().replace('.', "").len();
    let text = format!("{:.*e}", count - 1, value.abs());
    let (mantissa, power) = text.split_once('e').unwrap();
    let digits = mantissa.replace('.', "");
    let k = i32::try_from(digits.len()).unwrap();
    let n = power.parse::<i32>().unwrap() + 1;
    let zeros = |count: i32| "0".repeat(usize::try_from(count).unwrap());
    let body = if k <= n && n <= 21 {
        digits + &zeros(n - k)
    } else if 0 < n && n <= 21 {
        let (whole, fraction) = digits.split_at(usize::try_from(n).unwrap());
        format!("{whole}.{fraction}")
    } else if -6 < n && n <= 0 {
        format!("0.{}{digits}", zeros(-n))
    } else {
        let (first, rest) = digits.split_at(1);
        let point = if rest.is_empty() { "" } else { "." };
        format!("{first}{point}{rest}e{:+}", n - 1)
    };
    format!("{sign}{body}")
}

/// A million doubles of every size, the same in every run (xorshift64*).
fn doubles() -> impl Iterator<Item = f64> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    (0..1_000_000_u32).map(move |n| {
        state ^= state >> 12;
        state ^= state << 25;
        state ^= state >> 27;
        let bits = state.wrapping_mul(0x2545_f491_4f6c_dd1d);
        let small = i32::try_from(bits % 60).unwrap() - 30;
        #[expect(clippy::cast_precision_loss, reason = "any double will do")]
        let value = match n % 5 {
            // Amounts, at and between cents.
            0 => (bits % 10_000_000_000) as f64 / 100.0,
            // Powers of ten and their neighbours, where the form changes.
            1 => {
                let power: f64 = format!("1e{small}").parse().unwrap();
                f64::from_bits(power.to_bits() + bits % 5 - 2)
            }
            // Around the largest integers.
            2 => 9_007_199_254_740_992.0 + (bits % 4096) as f64 - 2048.0,
            // The smallest there are.
            3 => f64::from_bits(bits >> (12 + bits % 50)),
            _ => f64::from_bits(bits),
        };
        if bits & 1 == 0 { value } else { -value }
    })
}

#[test]
fn a_million_numbers_are_written_as_another_implementation_writes_them() {
    let mut finite = 0;
    let mut out = Vec::new();
    for value in doubles().filter(|v| v.is_finite()) {
        out.clear();
        write(&Node::Number(value), &mut out);
        let expected = number_to_string(value);
        assert_eq!(out, expected.as_bytes(), "{:016x}", value.to_bits());
        // And read back as the same double; `-0` as `0`.
        assert_eq!(expected.parse::<f64>().unwrap(), value, "{expected}");
        finite += 1;
    }
    assert!(finite > 990_000, "{finite}");
}
