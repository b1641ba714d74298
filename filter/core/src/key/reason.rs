//! Stable names for what is wrong with a key. Clients and dashboards match on them: none is ever
//! renamed. The sentences are for people and may change; neither holds any part of a key.

macro_rules! reasons {
    ($($name:ident = $id:literal, $sentence:literal;)+) => {
        $(#[doc = $sentence] pub const $name: &str = $id;)+

        /// Every name, for tables and tests.
        pub const ALL: &[&str] = &[$($name),+];

        /// What to tell the client; the name itself where it is not one of these.
        #[must_use]
        pub fn sentence(reason: &str) -> &str {
            match reason {
                $($id => $sentence,)+
                other => other,
            }
        }
    };
}

reasons! {
    EMPTY = "empty", "The key is empty.";
    BLANK = "blank", "The key is nothing but white space.";
    SPACE = "space", "The key contains white space.";
    CONTROL = "control", "The key contains a control character.";
    NOT_UTF8 = "not_utf8", "The key is neither ASCII nor UTF-8.";
    NOT_ASCII = "not_ascii", "The key contains a character outside ASCII.";
    TOO_LONG = "too_long", "The key has more characters than this route allows.";
    QUOTING = "quoting", "The key's quotes are not those of a Structured Fields String (RFC 9651).";
    UNQUOTED = "unquoted", "This route takes the key only as a Structured Fields String, in double quotes.";
    LIST = "list", "The header holds more than one value, or a comma outside quotes.";
    LINES_DIFFER = "lines_differ", "The header is repeated with different keys.";
    PLACES_DIFFER = "places_differ", "The header and the body name different keys.";
    NOT_A_STRING = "not_a_string", "The key in the body is not a JSON string.";
    BODY_UNREADABLE = "body_unreadable", "The body that may hold the key is not JSON that reads one way only.";
    FORMAT = "format", "The key has none of the forms that this route takes.";
    PADDED = "padded", "The key is base64 with padding; send it without the equals signs.";
    UUID_NIL = "uuid_nil", "The key is the nil UUID, which no generator makes.";
    UUID_MAX = "uuid_max", "The key is the max UUID, which no generator makes.";
    ULID_BOUND = "ulid_bound", "The key is the lowest or highest ULID, which no generator makes.";
    SHORT = "short", "The key is too short to be unguessable.";
    REPETITIVE = "repetitive", "The key is a repetition or a run of characters.";
    NO_TIME = "no_time", "The key does not carry the creation time that this route requires.";
    FUTURE = "future", "The key was made more than five minutes in the future.";
    DEADLINE_MISSING = "deadline_missing", "The deadline header is missing.";
    DEADLINE_FORM = "deadline_form", "The deadline is neither one HTTP date nor Unix seconds.";
    DEADLINE_FAR = "deadline_far", "The deadline is later than operations are remembered.";
}

#[cfg(test)]
mod tests {
    use super::*;
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    #[test]
    fn names_are_unique_tokens_and_each_has_a_sentence() {
        let mut seen = std::collections::BTreeSet::new();
        for id in ALL {
            assert!(seen.insert(id), "{id} twice");
            assert!(
                id.bytes()
                    .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_')
            );
            assert!(sentence(id).ends_with('.') && sentence(id) != *id);
        }
    }
}
