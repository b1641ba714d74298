//! From a JSON value to the model, with every structural error in one go.
//!
//! What does not fit is told and left out, as if its member had not been written, and the rest is
//! read on: so one run tells an operator about five misspelt names, not one.

use super::error::Report;
use super::explain::explain;
use super::model::Config;
use serde_json::Value;
use std::collections::BTreeMap;

/// Structural errors beyond this many are left for the next run.
const MOST: usize = 64;

/// `None` where too much is wrong for the rest to mean anything.
pub(super) fn read(value: &Value, report: &mut Report) -> Option<Config> {
    let mut reader = Reader {
        root: value,
        steps: Vec::new(),
        report,
        left: MOST,
    };
    match Config::read(value, &mut reader) {
        Ok(config) => (reader.left > 0).then_some(config),
        Err(fault) => {
            reader.tell(fault);
            None
        }
    }
}

/// One step from the root to a place in the document.
pub(super) enum Step<'v> {
    Member(&'v str),
    Element(usize),
}

/// Why a value does not fit its place.
pub(super) enum Fault {
    /// There is no member of that name; these there are.
    Name(Vec<&'static str>),
    /// There is no word like that; these there are.
    Word(&'static [&'static str]),
    /// Something else stands here than this.
    Shape(&'static str),
    /// Problem and remedy.
    Wrong(String, String),
}

/// A type of the model.
pub(super) trait Read: Sized {
    /// The value at the reader's place. A fault is told by whoever reads the member around it.
    fn read<'v>(value: &'v Value, reader: &mut Reader<'v>) -> Result<Self, Fault>;
}

/// A member of an object, to be filled where it is written.
pub(super) trait Slot {
    fn fill<'v>(&mut self, value: &'v Value, reader: &mut Reader<'v>) -> Result<(), Fault>;
}

impl<T: Read> Slot for Option<T> {
    fn fill<'v>(&mut self, value: &'v Value, reader: &mut Reader<'v>) -> Result<(), Fault> {
        *self = Some(T::read(value, reader)?);
        Ok(())
    }
}

/// Where the reading is, and what it found.
pub(super) struct Reader<'v> {
    root: &'v Value,
    steps: Vec<Step<'v>>,
    report: &'v mut Report,
    /// Errors that may still be told; nothing more is read after the last.
    left: usize,
}

impl<'v> Reader<'v> {
    /// Fills the members that are written; those that do not fit are told and left as they are.
    pub(super) fn object(
        &mut self,
        value: &'v Value,
        expecting: &'static str,
        slots: &mut [(&'static str, &mut dyn Slot)],
    ) -> Result<(), Fault> {
        let Value::Object(members) = value else {
            let fault = Fault::Shape(expecting);
            // A route that is no object at all becomes an empty one: without it, the others would be
            // renumbered.
            if let [Step::Member(_), Step::Element(_)] = self.steps.as_slice() {
                self.tell(fault);
                return Ok(());
            }
            return Err(fault);
        };
        for (name, member) in members {
            self.member(name, |reader| {
                match slots.iter_mut().find(|(known, _)| plain(known) == name) {
                    Some((_, slot)) => slot.fill(member, reader),
                    None => Err(Fault::Name(slots.iter().map(|(n, _)| plain(n)).collect())),
                }
            });
        }
        Ok(())
    }

    /// Reads one member. A fault anywhere in it, but in an object below, costs the whole member.
    fn member(&mut self, name: &'v str, read: impl FnOnce(&mut Self) -> Result<(), Fault>) {
        let depth = self.steps.len();
        self.steps.push(Step::Member(name));
        if let Err(fault) = read(self) {
            self.tell(fault);
        }
        self.steps.truncate(depth);
    }

    /// Reads each element. After a fault the steps still lead to the element that has it.
    fn list(
        &mut self,
        value: &'v Value,
        each: &mut dyn FnMut(&'v Value, &mut Self) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        let Value::Array(items) = value else {
            return Err(Fault::Shape("a list"));
        };
        for (at, item) in items.iter().enumerate() {
            self.steps.push(Step::Element(at));
            each(item, self)?;
            self.steps.pop();
        }
        Ok(())
    }

    fn tell(&mut self, fault: Fault) {
        if let Some(left) = self.left.checked_sub(1) {
            self.left = left;
            let (path, problem, remedy) = explain(&self.steps, self.root, fault);
            self.report.unreadable(path, problem, remedy);
        }
    }
}

/// The name of a member as it is written; `stringify!` keeps the mark of a Rust keyword.
fn plain(name: &'static str) -> &'static str {
    name.strip_prefix("r#").unwrap_or(name)
}

/// A string.
pub(super) fn text(value: &Value) -> Result<&str, Fault> {
    value.as_str().ok_or(Fault::Shape("a string"))
}

impl Read for String {
    fn read<'v>(value: &'v Value, _: &mut Reader<'v>) -> Result<Self, Fault> {
        text(value).map(ToOwned::to_owned)
    }
}

impl Read for bool {
    fn read<'v>(value: &'v Value, _: &mut Reader<'v>) -> Result<Self, Fault> {
        value.as_bool().ok_or(Fault::Shape("true or false"))
    }
}

/// A word of a list. Envoy reads YAML as version 1.1 has it: a bare `off` arrives as `false`.
pub(super) fn word<'v>(value: &'v Value, known: &[&str]) -> Result<&'v str, Fault> {
    match value {
        Value::Bool(false) if known.contains(&"off") => Ok("off"),
        other => text(other),
    }
}

/// A number. Envoy hands on as text what its YAML reader does not take for a 32-bit integer:
/// fractions, and large numbers.
fn number<N: std::str::FromStr>(value: &Value, direct: Option<N>) -> Option<N> {
    let written = || {
        let text = value.as_str()?;
        let plain = |b: u8| b.is_ascii_digit() || b == b'.';
        (!text.is_empty() && text.bytes().all(plain)).then(|| text.parse().ok())?
    };
    direct.or_else(written)
}

impl Read for f64 {
    fn read<'v>(value: &'v Value, _: &mut Reader<'v>) -> Result<Self, Fault> {
        number(value, value.as_f64()).ok_or(Fault::Shape("a number"))
    }
}

/// Whole numbers up to what doubles carry exactly, whichever way they came.
fn whole(value: &Value) -> Option<u64> {
    number(value, value.as_u64()).filter(|n| *n <= super::size::MAX)
}

impl Read for u64 {
    fn read<'v>(value: &'v Value, _: &mut Reader<'v>) -> Result<Self, Fault> {
        whole(value).ok_or(Fault::Shape("a whole number, 0 or more"))
    }
}

impl Read for u32 {
    fn read<'v>(value: &'v Value, _: &mut Reader<'v>) -> Result<Self, Fault> {
        let read = whole(value).and_then(|n| n.try_into().ok());
        read.ok_or(Fault::Shape("a whole number from 0 to 4294967295"))
    }
}

impl Read for u16 {
    fn read<'v>(value: &'v Value, _: &mut Reader<'v>) -> Result<Self, Fault> {
        let read = whole(value).and_then(|n| n.try_into().ok());
        read.ok_or(Fault::Shape("a whole number from 0 to 65535"))
    }
}

impl<T: Read> Read for Vec<T> {
    fn read<'v>(value: &'v Value, reader: &mut Reader<'v>) -> Result<Self, Fault> {
        let mut items = Self::new();
        reader.list(value, &mut |item, reader| {
            items.push(T::read(item, reader)?);
            Ok(())
        })?;
        Ok(items)
    }
}

/// An object whose names are free.
impl<T: Read> Read for BTreeMap<String, T> {
    fn read<'v>(value: &'v Value, reader: &mut Reader<'v>) -> Result<Self, Fault> {
        let Value::Object(members) = value else {
            return Err(Fault::Shape("an object"));
        };
        let mut made = Self::new();
        for (name, member) in members {
            reader.member(name, |reader| {
                made.insert(name.clone(), T::read(member, reader)?);
                Ok(())
            });
        }
        Ok(made)
    }
}

/// Tells null (`None`) from absence, which is the slot's own `None`.
impl Read for Option<String> {
    fn read<'v>(value: &'v Value, reader: &mut Reader<'v>) -> Result<Self, Fault> {
        match value {
            Value::Null => Ok(None),
            _ => String::read(value, reader).map(Some),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    fn errors(value: Value) -> Vec<String> {
        let mut report = Report::default();
        read(&value, &mut report);
        if report.is_clean() {
            return Vec::new();
        }
        let errors = report.into_errors();
        errors.errors().iter().map(ToString::to_string).collect()
    }

    #[test]
    fn every_structural_error_is_told_in_one_go() {
        let said = errors(json!({
            "namespac": "x",
            "mode": "enforced",
            "limits": {"worker_waiters": -1},
            "routes": [
                1,
                {"id": 7, "lease": "5m", "match": {"methods": "POST", "path": {"prefx": "/a"}}},
                {"record": {"classes": {"overrides": {"5xx": "keep"}}}, "unknown": {"retyr": {}}},
            ],
        }));
        for expected in [
            r#"namespac: unknown field "namespac"; did you mean "namespace"?"#,
            r#"mode: unknown value "enforced"; did you mean "enforce"?"#,
            "limits.worker_waiters: -1 does not belong here; write a whole number from 0 to 4294967295",
            "routes[0]: 1 does not belong here; write a route such as {id: charges",
            "routes[1].id: 7 does not belong here; write a string",
            r#"routes[1].lease: "5m" is not a duration; write "300s""#,
            r#"routes[1].match.methods: "POST" does not belong here; write a list"#,
            r#"routes[1].match.path.prefx: unknown field "prefx"; did you mean "prefix"?"#,
            r#"routes[2].record.classes.overrides.5xx: unknown value "keep"; known here: record, release, unknown, accepted"#,
            r#"routes[2].unknown.retyr: unknown field "retyr"; did you mean "retry"?"#,
        ] {
            assert!(
                said.iter().any(|s| s.starts_with(expected)),
                "{expected}\n{said:#?}"
            );
        }
        assert_eq!(said.len(), 10, "{said:#?}");
    }

    #[test]
    fn nothing_under_signing_is_shown() {
        for signing in [
            json!("s3cret"),
            json!({"active": "s3cret"}),
            json!({"active": {"env": ["s3cret"]}}),
            json!({"active": {"value": "s3cret"}}),
            json!({"s3cret": {}}),
            json!(["s3cret"]),
        ] {
            let said = errors(json!({ "signing": signing }));
            assert_eq!(said.len(), 1, "{said:?}");
            assert!(said[0].starts_with("signing"), "{said:?}");
            assert!(said[0].contains("env: NAME"), "{said:?}");
            assert!(!said[0].contains("s3cret"), "{said:?}");
        }
    }

    #[test]
    fn a_document_that_is_wrong_all_over_ends() {
        let many: serde_json::Map<_, _> = (0..500).map(|i| (format!("x{i}"), json!(1))).collect();
        assert_eq!(errors(Value::Object(many)).len(), MOST);
        assert_eq!(errors(json!([1])).len(), 1);
    }
}
