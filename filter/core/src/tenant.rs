//! Whose operation is it? Tenant and principal, from headers, dynamic metadata and host properties.
//!
//! The tenant is part of every operation's identity, so a caller who can choose it can choose whose
//! records it meets. Hence the rules here lean to refusal:
//!
//! - All sources that give a value must give the same octets; so must the lines of a repeated
//!   header. Anything else is drift: somebody says two things about who they are.
//! - A header that is present but empty or blank is not absent. Taking it as absent would let a
//!   caller blank a header that a trusted hop filters or overwrites only "if set", and so land in
//!   the default tenant: it is refused, as missing where a tenant is required and as invalid where
//!   not, whatever other sources say.
//! - An empty property or metadata value is absent. Hosts report an attribute that does not exist
//!   (a certificate without SAN, say) in both ways, and a caller cannot blank it.
//! - Values are octets. Metadata that is not a string arrives in the host's own encoding and is
//!   compared as that.

use crate::http::Headers;
use crate::ids::TenantDigest;
use crate::plan::{Source, Tenant};
use std::borrow::Cow;
use std::fmt;

/// The longest tenant or principal, octets.
pub const MAX_VALUE: usize = 256;

/// What the host knows of a request beyond its headers.
pub trait Facts {
    /// The host property at that path; `None` where there is none. Dynamic metadata is at
    /// `["metadata", "filter_metadata", filter, ..path]`.
    fn property(&self, path: &[&str]) -> Option<Vec<u8>>;
}

/// A tenant as its source gave it. Never shown by `Debug`; logs and metrics take the digest.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct TenantValue(Vec<u8>);

impl TenantValue {
    /// The octets: part of the operation's identity.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The form for stores, logs and metric buckets.
    #[must_use]
    pub fn digest(&self) -> TenantDigest {
        TenantDigest::new(&self.0)
    }
}

impl fmt::Debug for TenantValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TenantValue({})", self.digest().hex())
    }
}

/// Why nobody can be named.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TenantError {
    /// A tenant is required and no source gives one.
    #[error("no source gives a tenant")]
    Missing,
    /// Sources, or the lines of one header, disagree.
    #[error("tenant sources disagree")]
    Drift,
    /// A header is present but empty, or a value is longer than [`MAX_VALUE`].
    #[error("a tenant source is empty or too long")]
    Invalid,
}

/// The tenant of a request; the rule's default where no source gives one and none is required.
///
/// # Errors
/// See [`TenantError`].
pub fn resolve(
    rule: &Tenant,
    headers: &Headers,
    facts: &(impl Facts + ?Sized),
) -> Result<TenantValue, TenantError> {
    let mut found: Option<Cow<'_, [u8]>> = None;
    for source in &rule.sources {
        let value = match value(source, headers, facts) {
            Err(Flaw::Empty) if rule.required => return Err(TenantError::Missing),
            other => other?,
        };
        match (&found, value) {
            (Some(first), Some(next)) if *first != next => return Err(TenantError::Drift),
            (None, Some(next)) => found = Some(next),
            _ => {}
        }
    }
    match found {
        Some(value) => Ok(TenantValue(value.into_owned())),
        None if rule.required => Err(TenantError::Missing),
        None => Ok(TenantValue(rule.default.clone().into_bytes())),
    }
}

/// The caller within the tenant; `None` where the source gives none.
///
/// # Errors
/// [`TenantError::Drift`] where header lines disagree, [`TenantError::Invalid`] where the value is
/// an empty header or too long.
pub fn principal(
    source: &Source,
    headers: &Headers,
    facts: &(impl Facts + ?Sized),
) -> Result<Option<Vec<u8>>, TenantError> {
    Ok(value(source, headers, facts)?.map(Cow::into_owned))
}

/// Why a single source cannot be read.
enum Flaw {
    Empty,
    TooLong,
    Differs,
}

impl From<Flaw> for TenantError {
    fn from(flaw: Flaw) -> Self {
        match flaw {
            Flaw::Empty | Flaw::TooLong => Self::Invalid,
            Flaw::Differs => Self::Drift,
        }
    }
}

fn value<'h>(
    source: &Source,
    headers: &'h Headers,
    facts: &(impl Facts + ?Sized),
) -> Result<Option<Cow<'h, [u8]>>, Flaw> {
    let value = match source {
        Source::Header(name) => header(name, headers)?.map(Cow::Borrowed),
        Source::Metadata { filter, path } => {
            let mut full = vec!["metadata", "filter_metadata", filter.as_str()];
            full.extend(path.iter().map(String::as_str));
            property(&full, facts)
        }
        Source::Property(path) => {
            let path: Vec<&str> = path.iter().map(String::as_str).collect();
            property(&path, facts)
        }
    };
    match value {
        Some(v) if v.len() > MAX_VALUE => Err(Flaw::TooLong),
        other => Ok(other),
    }
}

fn property(path: &[&str], facts: &(impl Facts + ?Sized)) -> Option<Cow<'static, [u8]>> {
    facts
        .property(path)
        .filter(|v| !v.is_empty())
        .map(Cow::Owned)
}

fn header<'h>(name: &str, headers: &'h Headers) -> Result<Option<&'h [u8]>, Flaw> {
    let mut first: Option<&[u8]> = None;
    for (_, line) in headers.lines().iter().filter(|(n, _)| n == name.as_bytes()) {
        let line = line.trim_ascii();
        match first {
            _ if line.is_empty() => return Err(Flaw::Empty),
            Some(before) if before != line => return Err(Flaw::Differs),
            _ => first = Some(line),
        }
    }
    Ok(first)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    #[derive(Default)]
    struct Known(BTreeMap<String, Vec<u8>>);

    impl Known {
        fn of(entries: &[(&str, &[u8])]) -> Self {
            Self(
                entries
                    .iter()
                    .map(|(k, v)| ((*k).to_owned(), v.to_vec()))
                    .collect(),
            )
        }
    }

    impl Facts for Known {
        fn property(&self, path: &[&str]) -> Option<Vec<u8>> {
            self.0.get(&path.join("/")).cloned()
        }
    }

    const JWT: &str = "metadata/filter_metadata/envoy.filters.http.jwt_authn/payload/tenant";

    fn rule(required: bool) -> Tenant {
        Tenant {
            required,
            sources: vec![
                Source::Header("x-tenant".into()),
                Source::Metadata {
                    filter: "envoy.filters.http.jwt_authn".into(),
                    path: vec!["payload".into(), "tenant".into()],
                },
                Source::Property(vec!["connection".into(), "san".into()]),
            ],
            default: "default".into(),
        }
    }

    fn get(
        required: bool,
        lines: &[&str],
        facts: &[(&str, &[u8])],
    ) -> Result<Vec<u8>, TenantError> {
        let headers = lines.iter().map(|v| ("X-Tenant", *v)).collect();
        resolve(&rule(required), &headers, &Known::of(facts)).map(|t| t.as_bytes().to_vec())
    }

    fn tenant(value: &[u8]) -> Result<Vec<u8>, TenantError> {
        Ok(value.to_vec())
    }

    #[test]
    fn any_source_alone_names_the_tenant() {
        assert_eq!(get(true, &["acme"], &[]), tenant(b"acme"));
        assert_eq!(get(true, &[" acme\t"], &[]), tenant(b"acme"));
        assert_eq!(get(true, &[], &[(JWT, b"acme")]), tenant(b"acme"));
        assert_eq!(
            get(true, &[], &[("connection/san", b"spiffe://a")]),
            tenant(b"spiffe://a")
        );
    }

    #[test]
    fn all_that_are_present_must_agree() {
        let both: &[(&str, &[u8])] = &[(JWT, b"acme"), ("connection/san", b"acme")];
        assert_eq!(get(true, &["acme"], both), tenant(b"acme"));
        assert_eq!(get(true, &["evil"], both), Err(TenantError::Drift));
        assert_eq!(get(false, &["Acme"], both), Err(TenantError::Drift));
        let split: &[(&str, &[u8])] = &[(JWT, b"acme"), ("connection/san", b"evil")];
        assert_eq!(get(true, &[], split), Err(TenantError::Drift));
    }

    #[test]
    fn repeated_lines_must_agree() {
        assert_eq!(get(true, &["acme", "acme "], &[]), tenant(b"acme"));
        assert_eq!(get(true, &["acme", "evil"], &[]), Err(TenantError::Drift));
        assert_eq!(
            get(true, &["acme", "acme", "evil"], &[]),
            Err(TenantError::Drift)
        );
    }

    #[test]
    fn nothing_is_missing_or_the_default() {
        assert_eq!(get(true, &[], &[]), Err(TenantError::Missing));
        assert_eq!(get(false, &[], &[]), tenant(b"default"));
    }

    #[test]
    fn an_empty_header_is_no_way_into_the_default_tenant() {
        for blank in ["", " ", "\t "] {
            assert_eq!(get(true, &[blank], &[]), Err(TenantError::Missing));
            assert_eq!(get(false, &[blank], &[]), Err(TenantError::Invalid));
            assert_eq!(get(false, &["acme", blank], &[]), Err(TenantError::Invalid));
            assert_eq!(
                get(false, &[blank], &[(JWT, b"acme")]),
                Err(TenantError::Invalid)
            );
        }
    }

    #[test]
    fn an_empty_property_is_absent() {
        assert_eq!(get(true, &[], &[(JWT, b"")]), Err(TenantError::Missing));
        assert_eq!(get(true, &["acme"], &[(JWT, b"")]), tenant(b"acme"));
    }

    #[test]
    fn values_are_octets_of_bounded_length() {
        let odd = [0x0a, 0x00, 0xff];
        assert_eq!(get(true, &[], &[(JWT, &odd)]), tenant(&odd));
        let longest = "a".repeat(MAX_VALUE);
        assert_eq!(get(true, &[&longest], &[]), tenant(longest.as_bytes()));
        let longer = "a".repeat(MAX_VALUE + 1);
        assert_eq!(get(true, &[&longer], &[]), Err(TenantError::Invalid));
        assert_eq!(
            get(true, &[], &[(JWT, longer.as_bytes())]),
            Err(TenantError::Invalid)
        );
    }

    #[test]
    fn principal_comes_from_one_source() {
        let source = Source::Header("x-user".into());
        let read = |lines: &[&str]| {
            let headers = lines.iter().map(|v| ("x-user", *v)).collect();
            principal(&source, &headers, &Known::default())
        };
        assert_eq!(read(&["ann"]), Ok(Some(b"ann".to_vec())));
        assert_eq!(read(&[]), Ok(None));
        assert_eq!(read(&["ann", "bob"]), Err(TenantError::Drift));
        assert_eq!(read(&[""]), Err(TenantError::Invalid));
        let san = Source::Property(vec!["connection".into(), "san".into()]);
        let facts = Known::of(&[("connection/san", b"spiffe://a/b")]);
        let found = principal(&san, &Headers::default(), &facts);
        assert_eq!(found, Ok(Some(b"spiffe://a/b".to_vec())));
    }

    #[test]
    fn debug_shows_a_digest_only() {
        let value = TenantValue(b"acme-bank".to_vec());
        assert!(!format!("{value:?}").contains("acme"));
    }
}
