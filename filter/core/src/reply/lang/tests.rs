use super::*;
use std::collections::BTreeSet;
#[cfg(target_arch = "wasm32")]
use wasm_bindgen_test::wasm_bindgen_test as test;

fn every() -> impl Iterator<Item = (Language, Code, Text)> {
    Language::ALL
        .into_iter()
        .flat_map(|l| Code::ALL.into_iter().map(move |c| (l, c, l.text(c))))
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_ascii_alphabetic() && c != '-')
        .filter(|w| w.chars().any(|c| c.is_ascii_alphabetic()))
}

#[test]
fn every_text_is_there_and_finished() {
    for (language, code, text) in every() {
        let at = format!("{} {code}", language.tag());
        assert!(text.title.chars().count() >= 5, "{at}");
        assert!(text.title.chars().count() <= 80, "{at}");
        assert!(text.detail.chars().count() >= 40, "{at}");
        assert!(text.detail.len() <= 1200, "{at}");
        for part in [text.title, text.detail] {
            assert_eq!(part, part.trim(), "{at}");
            assert!(!part.contains("  "), "{at}");
            for mark in [
                "TODO", "FIXME", "XXX", "{", "}", "<", ">", "%", "\u{fffd}", "???", "...",
            ] {
                assert!(!part.contains(mark), "{at}: {mark}");
            }
            assert!(part.chars().all(|c| !c.is_control()), "{at}");
        }
    }
}

#[test]
fn no_text_stands_twice() {
    let titles: BTreeSet<_> = every().map(|(_, _, t)| t.title).collect();
    let details: BTreeSet<_> = every().map(|(_, _, t)| t.detail).collect();
    let all = Language::ALL.len() * Code::ALL.len();
    // Indonesian and Malay are close enough to share a title, and no more than that.
    let shared = Code::ALL
        .into_iter()
        .filter(|c| Language::Id.text(*c).title == Language::Ms.text(*c).title)
        .count();
    assert!(shared <= 1, "{shared}");
    assert_eq!(titles.len(), all - shared);
    assert_eq!(details.len(), all);
}

#[test]
fn scripts_are_the_right_ones_and_hold_no_english() {
    // "sha-" is what the split leaves of "sha-256" and "sha-512".
    const TECHNICAL: [&str; 8] = [
        "API",
        "HTTP",
        "UUID",
        "Retry-After",
        "ID",
        "Content-Digest",
        "RFC",
        "sha-",
    ];
    let own = |language: Language, c: char| match language {
        Language::ZhTw | Language::ZhCn => ('\u{4e00}'..='\u{9fff}').contains(&c),
        Language::Ja => ('\u{3040}'..='\u{30ff}').contains(&c),
        Language::Ko => ('\u{ac00}'..='\u{d7a3}').contains(&c),
        Language::Th => ('\u{0e00}'..='\u{0e7f}').contains(&c),
        _ => c.is_ascii_lowercase(),
    };
    for (language, code, text) in every() {
        for part in [text.title, text.detail] {
            let at = format!("{} {code}: {part}", language.tag());
            assert!(
                part.chars().filter(|c| own(language, *c)).count() >= 3,
                "{at}"
            );
            for other in Language::ALL {
                let alien = part.chars().any(|c| own(other, c));
                let may = match (language, other) {
                    (a, b) if a == b => true,
                    // Kanji; and Latin words are looked at below.
                    (
                        Language::Ja | Language::ZhTw | Language::ZhCn,
                        Language::ZhTw | Language::ZhCn,
                    ) => true,
                    (_, Language::En | Language::Vi | Language::Id | Language::Ms) => true,
                    _ => false,
                };
                assert!(may || !alien, "{at}");
            }
            if matches!(
                language,
                Language::ZhTw | Language::ZhCn | Language::Ja | Language::Ko | Language::Th
            ) {
                for word in words(part) {
                    assert!(TECHNICAL.contains(&word), "{at}: {word}");
                }
            }
        }
    }
}

#[test]
fn latin_catalogues_hold_no_english_either() {
    const ENGLISH: [&str; 14] = [
        "the",
        "this",
        "request",
        "was",
        "not",
        "key",
        "with",
        "retry",
        "same",
        "operation",
        "for",
        "is",
        "and",
        "executed",
    ];
    for (language, code, text) in every() {
        if !matches!(language, Language::Vi | Language::Id | Language::Ms) {
            continue;
        }
        // One gloss helps a Vietnamese reader find the term in other documentation.
        let detail = text.detail.replace("(idempotency key)", "");
        for word in words(text.title).chain(words(&detail)) {
            assert!(
                !ENGLISH.contains(&word.to_ascii_lowercase().as_str()),
                "{} {code}: {word}",
                language.tag()
            );
        }
    }
}

#[test]
fn the_two_chinese_catalogues_do_not_mix_their_characters() {
    // Pairs that occur in nearly every text.
    for code in Code::ALL {
        let (tw, cn) = (Language::ZhTw.text(code), Language::ZhCn.text(code));
        for (traditional, simplified) in [
            ('請', '请'),
            ('執', '执'),
            ('鑰', '钥'),
            ('務', '务'),
            ('錄', '录'),
            ('內', '内'),
            ('與', '与'),
        ] {
            assert!(
                !tw.title.contains(simplified) && !tw.detail.contains(simplified),
                "{code}"
            );
            assert!(
                !cn.title.contains(traditional) && !cn.detail.contains(traditional),
                "{code}"
            );
        }
    }
}

#[test]
fn waiting_is_explained_where_retry_after_is_sent() {
    for language in Language::ALL {
        for code in [
            Code::InFlight,
            Code::StoreUnavailable,
            Code::StoreRecovering,
        ] {
            assert!(
                language.text(code).detail.contains("Retry-After"),
                "{} {code}",
                language.tag()
            );
        }
    }
}

#[test]
fn nobody_is_accused() {
    for (language, code, text) in every() {
        let both = format!("{} {}", text.title, text.detail).to_lowercase();
        for word in [
            "fraud",
            "attack",
            "suspicious",
            "forbidden",
            "illegal",
            "abuse",
            "詐",
            "诈",
            "攻擊",
            "攻击",
            "可疑",
            "非法",
            "不正",
            "違反",
            "詐欺",
            "사기",
            "공격",
            "불법",
            "gian lận",
            "tấn công",
            "ฉ้อโกง",
            "โจมตี",
            "penipuan",
            "serangan",
            "curang",
        ] {
            assert!(!both.contains(word), "{} {code}: {word}", language.tag());
        }
    }
}
