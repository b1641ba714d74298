//! Which language: `Accept-Language` with its weights (RFC 9110 §12.5.4), matched by lookup
//! (RFC 4647 §3.4).
//!
//! Written here since the crates at hand do not do it: `accept-language` 3 matches whole tags only,
//! lets `q=0` and `*` through as wishes, and copies the header however long it is; `fluent-langneg`
//! ignores weights and brings ICU's locale data into the module.
//!
//! A header that cannot be read, or asks for nothing that exists, gives English: an answer in the
//! wrong language is worth more than none (RFC 9110 §12.5.4 permits it). Work is bounded by
//! [`MAX_OCTETS`] and [`MAX_RANGES`]; what lies beyond is not looked at.

use super::lang::Language;
use crate::order;

/// Octets looked at over all lines. Browsers send fewer than 100.
const MAX_OCTETS: usize = 1024;
/// Ranges looked at.
const MAX_RANGES: usize = 32;
/// RFC 5646 §4.4.1 has 35 for the longest sensible tag.
const MAX_RANGE: usize = 64;

struct Range<'a> {
    tag: &'a [u8],
    /// Thousandths; 0 excludes.
    weight: u16,
}

/// The language for the values of all `Accept-Language` lines.
#[must_use]
pub fn negotiate(lines: &[&[u8]]) -> Language {
    let mut ranges = parse(lines);
    // Stable: equal weights keep the client's order.
    order::sort_by(&mut ranges, |a, b| b.weight.cmp(&a.weight));
    let excluded = |language: Language| {
        ranges
            .iter()
            .any(|r| r.weight == 0 && names(language).iter().any(|n| is_prefix(r.tag, n)))
    };
    ranges
        .iter()
        .filter(|range| range.weight > 0)
        .find_map(|range| {
            if range.tag == b"*" {
                // Anything will do: English, unless it is just what the client does not want.
                Language::ALL.into_iter().find(|l| !excluded(*l))
            } else {
                lookup(range.tag).filter(|l| !excluded(*l))
            }
        })
        .unwrap_or(Language::En)
}

fn parse<'a>(lines: &[&'a [u8]]) -> Vec<Range<'a>> {
    let mut left = MAX_OCTETS;
    let mut ranges = Vec::new();
    for line in lines {
        for element in line.split(|b| *b == b',') {
            left = match left.checked_sub(element.len().saturating_add(1)) {
                Some(rest) if ranges.len() < MAX_RANGES => rest,
                _ => return ranges,
            };
            ranges.extend(parse_element(element));
        }
    }
    ranges
}

/// `language-range [OWS ";" OWS "q=" qvalue]`; anything else is skipped.
fn parse_element(element: &[u8]) -> Option<Range<'_>> {
    let mut parts = element.split(|b| *b == b';').map(<[u8]>::trim_ascii);
    let tag = parts.next()?;
    let weight = match parts.next() {
        None => 1000,
        Some(parameter) => match parameter.split_first_chunk::<2>() {
            Some((b"q=" | b"Q=", value)) => weight(value)?,
            _ => return None,
        },
    };
    let well_formed = tag == b"*"
        || (tag.len() <= MAX_RANGE
            && tag.first().is_some_and(u8::is_ascii_alphabetic)
            && tag.split(|b| *b == b'-').all(|subtag| {
                (1..=8).contains(&subtag.len()) && subtag.iter().all(u8::is_ascii_alphanumeric)
            }));
    (parts.next().is_none() && well_formed).then_some(Range { tag, weight })
}

/// RFC 9110 §12.4.2 in thousandths: `0` or `1`, then at most three decimals; never above 1.
fn weight(value: &[u8]) -> Option<u16> {
    let (whole, decimals) = value.split_first()?;
    let digits = match decimals {
        [] => decimals,
        [b'.', digits @ ..] => digits,
        _ => return None,
    };
    if digits.len() > 3 || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let fraction = digits
        .iter()
        .chain([b'0'; 3].iter())
        .take(3)
        .fold(0, |sum, digit| sum * 10 + u16::from(digit - b'0'));
    match (whole, fraction) {
        (b'0', fraction) => Some(fraction),
        (b'1', 0) => Some(1000),
        _ => None,
    }
}

/// RFC 4647 §3.4. Every language here is decided by its first subtag, so cutting subtags off the
/// end always arrives there; only Chinese needs the script, or else the region.
fn lookup(tag: &[u8]) -> Option<Language> {
    let mut subtags = tag.split(|b| *b == b'-');
    let primary = subtags.next()?;
    let is = |code: &[u8]| primary.eq_ignore_ascii_case(code);
    if is(b"zh") || is(b"cmn") || is(b"yue") {
        // Extensions and private use begin at a single letter (RFC 5646 §2.2.6).
        let by_subtag =
            subtags
                .take_while(|subtag| subtag.len() > 1)
                .find_map(|subtag| match subtag.to_ascii_lowercase().as_slice() {
                    b"hant" | b"tw" | b"hk" | b"mo" | b"yue" => Some(Language::ZhTw),
                    b"hans" | b"cn" | b"sg" | b"my" => Some(Language::ZhCn),
                    _ => None,
                });
        let bare = if is(b"yue") {
            Language::ZhTw
        } else {
            Language::ZhCn
        };
        return Some(by_subtag.unwrap_or(bare));
    }
    // `in` is the code that Indonesian had until 1989, and that old Java still sends.
    if is(b"in") {
        return Some(Language::Id);
    }
    Language::ALL
        .into_iter()
        .find(|language| is(language.tag().as_bytes()))
}

/// The tags under which a language may be excluded by basic filtering (RFC 4647 §3.3.1):
/// `zh;q=0` excludes both Chinese texts, `zh-Hant;q=0` one, `en-GB;q=0` nothing that is here.
const fn names(language: Language) -> &'static [&'static str] {
    match language {
        Language::ZhTw => &["zh-TW", "zh-Hant-TW"],
        Language::ZhCn => &["zh-CN", "zh-Hans-CN"],
        Language::En => &["en"],
        Language::Ja => &["ja"],
        Language::Ko => &["ko"],
        Language::Vi => &["vi"],
        Language::Th => &["th"],
        Language::Id => &["id", "in"],
        Language::Ms => &["ms"],
    }
}

fn is_prefix(range: &[u8], tag: &str) -> bool {
    tag.as_bytes()
        .split_at_checked(range.len())
        .is_some_and(|(head, tail)| {
            head.eq_ignore_ascii_case(range) && matches!(tail.first(), None | Some(b'-'))
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    fn pick(header: &str) -> &'static str {
        negotiate(&[header.as_bytes()]).tag()
    }

    #[test]
    fn tags_scripts_and_regions() {
        for (header, expected) in [
            ("en-GB", "en"),
            ("zh", "zh-CN"),
            ("zh-CN", "zh-CN"),
            ("zh-SG", "zh-CN"),
            ("zh-Hans", "zh-CN"),
            ("zh-Hans-HK", "zh-CN"),
            ("zh-TW", "zh-TW"),
            ("ZH-hk", "zh-TW"),
            ("zh-MO", "zh-TW"),
            ("zh-Hant", "zh-TW"),
            ("zh-Hant-CN", "zh-TW"),
            ("zh-u-co-tw", "zh-CN"),
            ("cmn-Hant", "zh-TW"),
            ("yue", "zh-TW"),
            ("ja-JP", "ja"),
            ("ko-KR", "ko"),
            ("vi-VN", "vi"),
            ("th-TH", "th"),
            ("th-u-nu-thai", "th"),
            ("id-ID", "id"),
            ("in", "id"),
            ("in-ID", "id"),
            ("ms-MY", "ms"),
            ("ms-Latn-SG", "ms"),
            ("fr", "en"),
            ("jav", "en"),
            ("idx", "en"),
        ] {
            assert_eq!(pick(header), expected, "{header}");
        }
    }

    #[test]
    fn weights_decide_then_order() {
        assert_eq!(pick("en;q=0.5, ja;q=0.8, ko;q=0.3"), "ja");
        assert_eq!(pick("ja, ko"), "ja");
        assert_eq!(pick("fr, de;q=0.9, th;q=0.1"), "th");
        assert_eq!(pick("ja;q=0.999,ko;q=1"), "ko");
        assert_eq!(pick("ja ; q=0.2 ,\tvi; Q=0.3"), "vi");
        assert_eq!(pick("ja;q=0.,vi;q=1.000"), "vi");
        assert_eq!(negotiate(&[b"fr", b"ja;q=0.2, ko;q=0.4"]), Language::Ko);
    }

    #[test]
    fn zero_excludes_and_star_is_anything_else() {
        assert_eq!(pick("*"), "en");
        assert_eq!(pick("fr, *;q=0.1"), "en");
        assert_eq!(pick("*, en;q=0"), "zh-TW");
        assert_eq!(pick("*, en;q=0, zh;q=0"), "ja");
        assert_eq!(pick("*, en;q=0, zh-Hant;q=0"), "zh-CN");
        assert_eq!(pick("zh, zh-CN;q=0, ko;q=0.5"), "ko");
        assert_eq!(pick("in, id;q=0"), "en");
        assert_eq!(pick("ja;q=0.0"), "en");
        assert_eq!(pick("fr, ja-JP;q=0"), "en");
        assert_eq!(pick("en-GB;q=0, en"), "en");
        assert_eq!(pick("*;q=0"), "en");
    }

    #[test]
    fn nonsense_is_english_and_does_not_spoil_the_rest() {
        for header in [
            "",
            ",",
            ";",
            ";q=1",
            "ja;q",
            "ja;q=",
            "ja;q=2",
            "ja;q=1.1",
            "ja;q=0.1234",
            "ja;q=-1",
            "ja;q=NaN",
            "ja;q=1e3",
            "ja;q=.5",
            "ja;v=1",
            "ja;q=1;q=1",
            "j\u{e4}",
            "ja_JP",
            "-ja",
            "ja-",
            "ja--JP",
            "1a",
            "*-JP",
            "ja JP",
            "ja\0",
        ] {
            assert_eq!(pick(header), "en", "{header:?}");
            assert_eq!(pick(&format!("{header},ko;q=0.1")), "ko", "{header:?}");
        }
        assert_eq!(negotiate(&[]), Language::En);
        assert_eq!(negotiate(&[b"\xff\xfe,ja"]), Language::Ja);
        assert_eq!(pick(&format!("ja-{}", "a-".repeat(40) + "a")), "en");
    }

    #[test]
    fn what_lies_beyond_the_bounds_is_not_looked_at() {
        let many = "fr,".repeat(MAX_RANGES);
        assert_eq!(pick(&format!("{many}ja")), "en");
        assert_eq!(pick(&format!("ko,{many}ja")), "ko");
        assert_eq!(pick(&format!("ko,{},ja", "x".repeat(MAX_OCTETS))), "ko");
        assert_eq!(pick(&format!("{}ja", ",".repeat(1 << 20))), "en");
        assert_eq!(pick(&"ja;q=0.1,".repeat(1 << 16)), "ja");
        let lines = vec![&b"fr"[..]; 100_000];
        assert_eq!(negotiate(&lines), Language::En);
    }
}

#[cfg(all(test, not(target_arch = "wasm32")))]
mod properties {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn arbitrary_octets_give_some_language(lines: Vec<Vec<u8>>) {
            let lines: Vec<&[u8]> = lines.iter().map(Vec::as_slice).collect();
            prop_assert!(Language::ALL.contains(&negotiate(&lines)));
        }

        #[test]
        fn a_wish_at_full_weight_wins_over_any_lesser_one(
            first in 0..Language::ALL.len(),
            other in 0..Language::ALL.len(),
            q in 1..1000,
        ) {
            let (first, other) = (Language::ALL[first], Language::ALL[other]);
            let header = format!("{};q=0.{q:03}, {}", other.tag(), first.tag());
            prop_assert_eq!(negotiate(&[header.as_bytes()]), first);
        }
    }
}
