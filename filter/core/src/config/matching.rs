//! What two matchers have to do with each other: whether one holds the other, whether any request
//! could fit both. For rules that can never be reached, and for edits that hand requests from one rule to
//! another.

use crate::plan::{Matcher, PathMatch, Segment};

/// Whether every request that `narrow` matches is matched by `wide`.
pub(super) fn covers(wide: &Matcher, narrow: &Matcher) -> bool {
    if wide.metadata_only || narrow.metadata_only {
        return wide == narrow;
    }
    let methods = wide.methods.is_empty()
        || (!narrow.methods.is_empty() && narrow.methods.iter().all(|m| wide.methods.contains(m)));
    methods
        && part(&wide.host, &narrow.host, |w, n| host_covers(w, n))
        && part(&wide.path, &narrow.path, path_covers)
        && part(&wide.route_name, &narrow.route_name, |w, n| w == n)
        && part(&wide.body, &narrow.body, |w, n| w == n)
}

/// Whether some request may fit both. Errs on the side of yes.
pub(super) fn overlap(a: &Matcher, b: &Matcher) -> bool {
    if a.metadata_only || b.metadata_only {
        return false;
    }
    let methods = a.methods.is_empty()
        || b.methods.is_empty()
        || a.methods.iter().any(|m| b.methods.contains(m));
    methods
        && both(&a.host, &b.host, |a, b| {
            host_covers(a, b) || host_covers(b, a)
        })
        && both(&a.path, &b.path, paths_overlap)
        && both(&a.route_name, &b.route_name, |a, b| a == b)
        && both(&a.body, &b.body, |a, b| {
            a.pointer != b.pointer || a.exact == b.exact
        })
}

fn part<T>(wide: &Option<T>, narrow: &Option<T>, covers: impl Fn(&T, &T) -> bool) -> bool {
    match (wide, narrow) {
        (None, _) => true,
        (Some(_), None) => false,
        (Some(w), Some(n)) => covers(w, n),
    }
}

fn both<T>(a: &Option<T>, b: &Option<T>, meet: impl Fn(&T, &T) -> bool) -> bool {
    a.as_ref().zip(b.as_ref()).is_none_or(|(a, b)| meet(a, b))
}

fn host_covers(wide: &str, narrow: &str) -> bool {
    // The suffix with its dot: `*.example.com` does not stand for `example.com` itself.
    let suffix = wide.strip_prefix('*');
    wide == narrow || suffix.is_some_and(|s| narrow.ends_with(s) && narrow.len() > s.len())
}

/// One form of path as a pattern: its segments, and whether more may follow.
fn pattern(path: &PathMatch) -> (Vec<Option<&str>>, bool) {
    match path {
        PathMatch::Exact(text) => (text.split('/').skip(1).map(Some).collect(), false),
        PathMatch::Prefix(text) if text == "/" => (Vec::new(), true),
        PathMatch::Prefix(text) => (text.split('/').skip(1).map(Some).collect(), true),
        PathMatch::Template(segments) => {
            let of = segments.iter().map(|s| match s {
                Segment::Literal(text) => Some(text.as_str()),
                Segment::Variable(_) => None,
            });
            (of.collect(), false)
        }
    }
}

fn path_covers(wide: &PathMatch, narrow: &PathMatch) -> bool {
    let ((wide, wide_open), (narrow, narrow_open)) = (pattern(wide), pattern(narrow));
    let length = match (wide_open, narrow_open) {
        (true, _) => narrow.len() >= wide.len(),
        (false, true) => false,
        (false, false) => narrow.len() == wide.len(),
    };
    // A variable stands for any segment that is not empty.
    let segment = |(w, n): (&Option<&str>, &Option<&str>)| match (w, n) {
        (None, None) => true,
        (None, Some(n)) => !n.is_empty(),
        (Some(_), None) => false,
        (Some(w), Some(n)) => w == n,
    };
    length && wide.iter().zip(&narrow).all(segment)
}

fn paths_overlap(a: &PathMatch, b: &PathMatch) -> bool {
    let ((a, a_open), (b, b_open)) = (pattern(a), pattern(b));
    let length = (a_open || a.len() >= b.len()) && (b_open || b.len() >= a.len());
    let segment = |(a, b): (&Option<&str>, &Option<&str>)| match (a, b) {
        (Some(a), Some(b)) => a == b,
        (Some(text), None) | (None, Some(text)) => !text.is_empty(),
        (None, None) => true,
    };
    length && a.iter().zip(&b).all(segment)
}

#[cfg(test)]
mod tests {
    use super::*;
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    fn path(path: PathMatch) -> Matcher {
        Matcher {
            path: Some(path),
            ..Matcher::default()
        }
    }
    fn prefix(text: &str) -> Matcher {
        path(PathMatch::Prefix(text.into()))
    }
    fn exact(text: &str) -> Matcher {
        path(PathMatch::Exact(text.into()))
    }
    fn template(text: &str) -> Matcher {
        path(PathMatch::Template(
            crate::config::validate::template(text).unwrap(),
        ))
    }

    #[test]
    fn covering() {
        for (wide, narrow, expected) in [
            (prefix("/"), exact("/"), true),
            (prefix("/v1"), prefix("/v1"), true),
            (prefix("/v1"), prefix("/v1/x"), true),
            (prefix("/v1"), exact("/v1"), true),
            (prefix("/v1"), exact("/v1x"), false),
            (prefix("/v1/x"), prefix("/v1"), false),
            (prefix("/v1"), template("/v1/{id}"), true),
            (prefix("/v1/x"), template("/v1/{id}"), false),
            (template("/v1/{id}"), exact("/v1/x"), true),
            (template("/v1/{id}"), exact("/v1/"), false),
            (template("/v1/{id}"), prefix("/v1/x"), false),
            (template("/{a}/{b}"), template("/v1/{id}"), true),
            (template("/v1/{id}"), template("/{a}/{b}"), false),
            (Matcher::default(), exact("/v1"), true),
            (exact("/v1"), Matcher::default(), false),
        ] {
            assert_eq!(covers(&wide, &narrow), expected, "{wide:?} {narrow:?}");
            if expected {
                assert!(overlap(&wide, &narrow) && overlap(&narrow, &wide));
            }
        }
    }

    #[test]
    fn overlapping() {
        assert!(overlap(&template("/{a}/x"), &template("/v1/{b}")));
        assert!(!overlap(&template("/{a}/x"), &template("/{a}/y")));
        assert!(!overlap(&prefix("/v1"), &prefix("/v2")));
        assert!(overlap(&prefix("/v1"), &template("/{a}/x")));
        assert!(!overlap(&prefix("/v1/x/y"), &template("/{a}/x")));
    }

    #[test]
    fn methods_and_hosts() {
        let with = |methods: &[&str], host: Option<&str>| Matcher {
            methods: methods.iter().map(ToString::to_string).collect(),
            host: host.map(Into::into),
            ..Matcher::default()
        };
        assert!(covers(&with(&[], None), &with(&["POST"], None)));
        assert!(!covers(&with(&["POST"], None), &with(&[], None)));
        assert!(covers(
            &with(&["POST", "PUT"], None),
            &with(&["PUT"], Some("a"))
        ));
        assert!(!overlap(&with(&["POST"], None), &with(&["PUT"], None)));
        let wild = with(&[], Some("*.example.com"));
        assert!(covers(&wild, &with(&[], Some("a.b.example.com"))));
        assert!(covers(&wild, &with(&[], Some("*.b.example.com"))));
        assert!(!covers(&wild, &with(&[], Some("example.com"))));
        assert!(!covers(&wild, &with(&[], Some("badexample.com"))));
        assert!(!overlap(&wild, &with(&[], Some("example.org"))));
    }
}
