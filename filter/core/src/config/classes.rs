//! Which answers are recorded: presets, exceptions, and their compilation to a table.
//!
//! `strict` follows what an answer proves. 2xx and terminal 4xx are outcomes. 3xx are outcomes too:
//! the upstream has handled the write and names another resource (RFC 9110 §15.4, 303 above all),
//! so sending it again would run it again. 401, 403, 407, 409, 421, 425 and 429 say that this attempt
//! was turned away before its work: they release. 408 and 5xx say nothing about the effect: unknown. 202 is
//! taken on, not done: accepted.

use super::error::quote;
use super::forms::WordOr;
use super::model::{self, Classes, Preset};
use super::validate::Wrong;
use crate::order;
use crate::plan::{Class, ClassRule};

/// The statuses that final answers have.
const FINAL: (u16, u16) = (200, 599);
const RELEASING: [u16; 7] = [401, 403, 407, 409, 421, 425, 429];

/// Reads `404`, `5xx` or `500-503` as an inclusive range.
pub(super) fn range(text: &str) -> Result<(u16, u16), Wrong> {
    let three = |t: &str| {
        let digits = t.len() == 3 && t.bytes().all(|b| b.is_ascii_digit());
        digits.then(|| t.parse::<u16>().ok()).flatten()
    };
    let read = if let Some(hundred) = text.strip_suffix("xx") {
        three(&format!("{hundred}00")).map(|from| (from, from.saturating_add(99)))
    } else if let Some((from, to)) = text.split_once('-') {
        three(from).zip(three(to))
    } else {
        three(text).map(|status| (status, status))
    };
    let Some((from, to)) = read else {
        return Err((
            format!("{} is not a status or a range of them", quote(text)),
            "write one such as \"404\", \"5xx\" or \"500-503\"".into(),
        ));
    };
    if from > to {
        return Err((
            format!("{} ends before it starts", quote(text)),
            format!("write \"{to}-{from}\""),
        ));
    }
    if from < FINAL.0 || to > FINAL.1 {
        return Err((
            format!("{} goes beyond the statuses of final answers", quote(text)),
            "stay within 200 and 599".into(),
        ));
    }
    Ok((from, to))
}

/// The table: exceptions from the narrowest to the widest, then the preset. Complete for 200 to 599.
pub(super) fn compile(classes: Option<&Classes>) -> Vec<ClassRule> {
    let (preset, overrides) = match classes {
        None => (Preset::Strict, None),
        Some(WordOr::Word(preset)) => (*preset, None),
        Some(WordOr::Object(map)) => (map.preset.unwrap_or(Preset::Strict), map.overrides.as_ref()),
    };
    let mut rules: Vec<ClassRule> = overrides
        .into_iter()
        .flatten()
        .filter_map(|(text, class)| {
            let (from, to) = range(text).ok()?;
            Some(ClassRule {
                from,
                to,
                class: convert(*class),
            })
        })
        .collect();
    let width = |r: &ClassRule| (r.to.saturating_sub(r.from), r.from);
    order::sort_by(&mut rules, |a, b| width(a).cmp(&width(b)));
    rules.extend(table(preset));
    rules
}

/// One of the two statuses, wherever two exceptions overlap without one holding the other: which
/// of them counts would be a matter of luck.
pub(super) fn ambiguous(a: (u16, u16), b: (u16, u16)) -> Option<u16> {
    let overlap = (a.0.max(b.0), a.1.min(b.1));
    let nested = |x: (u16, u16), y: (u16, u16)| x.0 >= y.0 && x.1 <= y.1 && x != y;
    (overlap.0 <= overlap.1 && !nested(a, b) && !nested(b, a)).then_some(overlap.0)
}

fn table(preset: Preset) -> Vec<ClassRule> {
    let rule = |from, to, class| ClassRule { from, to, class };
    let mut rules = vec![rule(202, 202, Class::Accepted)];
    rules.extend(RELEASING.map(|status| rule(status, status, Class::Release)));
    rules.push(rule(408, 408, Class::Unknown));
    rules.push(rule(200, 499, Class::Record));
    rules.push(rule(
        500,
        599,
        match preset {
            Preset::Strict => Class::Unknown,
            Preset::RecordAll => Class::Record,
            Preset::RetryFailed => Class::Release,
        },
    ));
    rules
}

pub(super) const fn convert(class: model::Class) -> Class {
    match class {
        model::Class::Record => Class::Record,
        model::Class::Release => Class::Release,
        model::Class::Unknown => Class::Unknown,
        model::Class::Accepted => Class::Accepted,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    fn class(rules: &[ClassRule], status: u16) -> Class {
        let rule = rules.iter().find(|r| (r.from..=r.to).contains(&status));
        rule.unwrap_or_else(|| panic!("no class for {status}"))
            .class
    }

    #[test]
    fn presets_are_complete_and_say_what_the_design_says() {
        for (preset, five_hundreds) in [
            (Preset::Strict, Class::Unknown),
            (Preset::RecordAll, Class::Record),
            (Preset::RetryFailed, Class::Release),
        ] {
            let rules = compile(Some(&WordOr::Word(preset)));
            for status in 200..=599 {
                let expected = match status {
                    202 => Class::Accepted,
                    401 | 403 | 407 | 409 | 421 | 425 | 429 => Class::Release,
                    408 => Class::Unknown,
                    500.. => five_hundreds,
                    _ => Class::Record,
                };
                assert_eq!(class(&rules, status), expected, "{status}");
            }
        }
    }

    #[test]
    fn the_narrowest_exception_wins() {
        let overrides = [
            ("5xx".to_owned(), model::Class::Record),
            ("500-503".to_owned(), model::Class::Release),
            ("502".to_owned(), model::Class::Unknown),
        ]
        .into();
        let rules = compile(Some(&WordOr::Object(model::ClassesMap {
            preset: None,
            overrides: Some(overrides),
        })));
        assert_eq!(class(&rules, 502), Class::Unknown);
        assert_eq!(class(&rules, 503), Class::Release);
        assert_eq!(class(&rules, 504), Class::Record);
        assert_eq!(class(&rules, 429), Class::Release);
    }

    #[test]
    fn ranges_are_read_strictly() {
        assert_eq!(range("404"), Ok((404, 404)));
        assert_eq!(range("2xx"), Ok((200, 299)));
        assert_eq!(range("500-503"), Ok((500, 503)));
        for text in [
            "",
            "xx",
            "6xx",
            "1xx",
            "99",
            "+44",
            "40x",
            "503-500",
            "200-600",
            "5XX",
            "200 - 299",
            "2xxx",
        ] {
            assert!(range(text).is_err(), "{text}");
        }
    }

    #[test]
    fn overlaps_are_ambiguous_unless_one_holds_the_other() {
        assert_eq!(ambiguous((400, 450), (430, 499)), Some(430));
        assert_eq!(ambiguous((200, 299), (200, 299)), Some(200));
        assert_eq!(ambiguous((200, 299), (202, 202)), None);
        assert_eq!(ambiguous((200, 299), (300, 399)), None);
    }
}
