//! The nine languages, one file each.
//!
//! Each catalogue is one exhaustive `match`, so a code without a text does not compile, and the
//! module carries the texts and nothing else: no parser, no table to check at start. A text says
//! what happened to this request, and what to do next; it accuses nobody.

mod en;
mod id;
mod ja;
mod ko;
mod ms;
mod th;
mod vi;
mod zh_cn;
mod zh_tw;

use super::Code;

/// `title` and `detail` of RFC 9457 §3.1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Text {
    /// The kind of problem, in a few words.
    pub title: &'static str,
    /// What happened, and what the client's developer can do.
    pub detail: &'static str,
}

const fn text(title: &'static str, detail: &'static str) -> Text {
    Text { title, detail }
}

/// A language that replies are written in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Language {
    /// English, where nothing else fits.
    En,
    /// Chinese as written in Taiwan; also for Hong Kong and Macao.
    ZhTw,
    /// Chinese as written in mainland China; also for Singapore and plain `zh`.
    ZhCn,
    /// Japanese.
    Ja,
    /// Korean.
    Ko,
    /// Vietnamese.
    Vi,
    /// Thai.
    Th,
    /// Indonesian.
    Id,
    /// Malay.
    Ms,
}

impl Language {
    /// Every language, in the order of preference where a client says that any will do.
    pub const ALL: [Self; 9] = [
        Self::En,
        Self::ZhTw,
        Self::ZhCn,
        Self::Ja,
        Self::Ko,
        Self::Vi,
        Self::Th,
        Self::Id,
        Self::Ms,
    ];

    /// The tag for `Content-Language` (RFC 5646).
    #[must_use]
    pub const fn tag(self) -> &'static str {
        match self {
            Self::En => "en",
            Self::ZhTw => "zh-TW",
            Self::ZhCn => "zh-CN",
            Self::Ja => "ja",
            Self::Ko => "ko",
            Self::Vi => "vi",
            Self::Th => "th",
            Self::Id => "id",
            Self::Ms => "ms",
        }
    }

    /// The text for a code.
    #[must_use]
    pub const fn text(self, code: Code) -> Text {
        match self {
            Self::En => en::text_of(code),
            Self::ZhTw => zh_tw::text_of(code),
            Self::ZhCn => zh_cn::text_of(code),
            Self::Ja => ja::text_of(code),
            Self::Ko => ko::text_of(code),
            Self::Vi => vi::text_of(code),
            Self::Th => th::text_of(code),
            Self::Id => id::text_of(code),
            Self::Ms => ms::text_of(code),
        }
    }
}

#[cfg(test)]
mod tests;
