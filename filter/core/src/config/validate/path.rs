//! Paths of rules. Requests are compared by their normalised path, so a rule that no normalised
//! path can equal would be a hole through which writes pass unprotected: it is refused.

use super::Wrong;
use crate::config::error::quote;
use crate::plan::Segment;
use std::collections::BTreeSet;

fn wrong<T>(problem: impl Into<String>, remedy: impl Into<String>) -> Result<T, Wrong> {
    Err((problem.into(), remedy.into()))
}

/// An exact path.
pub(super) fn exact(text: &str) -> Result<(), Wrong> {
    plain(text)?;
    if text.contains(['{', '}']) {
        return wrong(
            format!(
                "{} has braces, which an exact path takes literally",
                quote(text)
            ),
            format!("write template: {}", quote(text)),
        );
    }
    Ok(())
}

/// A prefix of whole segments.
pub(super) fn prefix(text: &str) -> Result<(), Wrong> {
    if let Some(stem) = text.strip_suffix("/*") {
        return wrong(
            format!(
                "{} has a wildcard, which a prefix does not need",
                quote(text)
            ),
            format!("write {}", quote(if stem.is_empty() { "/" } else { stem })),
        );
    }
    plain(text)?;
    if text.contains(['{', '}']) {
        return wrong(
            format!("{} has braces, which a prefix takes literally", quote(text)),
            "write the prefix without variables, or a template",
        );
    }
    match text.strip_suffix('/') {
        Some(stem) if !stem.is_empty() => wrong(
            format!(
                "{} ends with \"/\"; a prefix stands for whole segments",
                quote(text)
            ),
            format!("write {}", quote(stem)),
        ),
        _ => Ok(()),
    }
}

/// A template, in segments.
pub(in crate::config) fn template(text: &str) -> Result<Vec<Segment>, Wrong> {
    plain(text)?;
    let mut names = BTreeSet::new();
    let mut segments = Vec::new();
    for segment in text.split('/').skip(1) {
        let inner = segment.strip_prefix('{').and_then(|s| s.strip_suffix('}'));
        match inner {
            Some(name) if is_variable(name) => {
                if !names.insert(name) {
                    return wrong(
                        format!(
                            "the variable {} stands twice in {}",
                            quote(name),
                            quote(text)
                        ),
                        "give each variable its own name",
                    );
                }
                segments.push(Segment::Variable(name.to_owned()));
            }
            None if segment.is_empty() => {
                return wrong(
                    format!(
                        "{} ends with \"/\", so its last segment is empty",
                        quote(text)
                    ),
                    format!("write {}", quote(text.trim_end_matches('/'))),
                );
            }
            None if !segment.contains(['{', '}']) => {
                segments.push(Segment::Literal(segment.to_owned()));
            }
            _ => {
                return wrong(
                    format!("{} is not a segment of a template", quote(segment)),
                    "write a variable as a whole segment, such as \"/v1/orders/{id}/charges\", with a name of small letters, digits and _",
                );
            }
        }
    }
    if names.is_empty() {
        return wrong(
            format!("{} has no variable", quote(text)),
            format!("write exact: {}", quote(text)),
        );
    }
    Ok(segments)
}

fn is_variable(name: &str) -> bool {
    name.len() <= 64
        && name
            .bytes()
            .next()
            .is_some_and(|b| b.is_ascii_lowercase() || b == b'_')
        && name
            .bytes()
            .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_')
}

/// What every form has in common.
fn plain(text: &str) -> Result<(), Wrong> {
    if !text.starts_with('/') {
        return wrong(
            format!("{} does not start with \"/\"", quote(text)),
            format!("write {}", quote(&format!("/{text}"))),
        );
    }
    if let Some(at) = text.find(['?', '#']) {
        let path = text.split_at_checked(at).map_or("", |(path, _)| path);
        return wrong(
            format!(
                "{} has a query or fragment, and rules compare the path alone",
                quote(text)
            ),
            format!("write {}", quote(path)),
        );
    }
    if text.contains("//") {
        return wrong(
            format!(
                "{} has an empty segment, which no normalised path has",
                quote(text)
            ),
            "write single slashes",
        );
    }
    if text.split('/').any(|s| s == "." || s == "..") {
        return wrong(
            format!(
                "{} has a dot segment, which no normalised path has",
                quote(text)
            ),
            "write the path without \".\" and \"..\"",
        );
    }
    if text.contains('%') {
        return wrong(
            format!(
                "{} has an escape, and paths are compared unescaped",
                quote(text)
            ),
            "write the character itself",
        );
    }
    if text.contains('*') {
        return wrong(
            format!("{} has a wildcard, which rules do not have", quote(text)),
            "write prefix for everything below a path, template for a variable segment",
        );
    }
    if !text.bytes().all(|b| b.is_ascii_graphic()) || text.contains('\\') {
        return wrong(
            format!("{} has characters that no normalised path has", quote(text)),
            "write visible ASCII without backslashes",
        );
    }
    if text.len() > 2048 {
        return wrong("is longer than 2048 characters", "shorten it");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    #[test]
    fn what_no_normalised_path_has_is_refused_in_every_form() {
        for text in [
            "", "v1", "/a?b", "/a#b", "//a", "/a//b", "/./a", "/a/..", "/a%2fb", "/a/*/b", "/a b",
            "/é", "/a\\b",
        ] {
            assert!(exact(text).is_err(), "exact {text}");
            assert!(prefix(text).is_err(), "prefix {text}");
            assert!(template(text).is_err(), "template {text}");
        }
        assert_eq!(prefix("v1/x").unwrap_err().1, "write \"/v1/x\"");
        assert_eq!(prefix("/v1/*").unwrap_err().1, "write \"/v1\"");
        assert_eq!(prefix("/v1/").unwrap_err().1, "write \"/v1\"");
    }

    #[test]
    fn ordinary_paths() {
        for text in [
            "/",
            "/v1/charges",
            "/v1/charges/",
            "/v1/charges:cancel",
            "/a..b/.hidden",
        ] {
            assert!(exact(text).is_ok(), "{text}");
        }
        assert!(prefix("/").is_ok());
        assert!(prefix("/v1").is_ok());
    }

    #[test]
    fn templates() {
        assert_eq!(
            template("/v1/{id}/x"),
            Ok(vec![
                Segment::Literal("v1".into()),
                Segment::Variable("id".into()),
                Segment::Literal("x".into()),
            ])
        );
        for text in [
            "/v1/x",
            "/{id}/{id}",
            "/{}",
            "/{Id}",
            "/x{id}",
            "/{id",
            "/id}",
            "/{id}/",
            "/{a{b}}",
            "/{1}",
        ] {
            assert!(template(text).is_err(), "{text}");
        }
    }
}
