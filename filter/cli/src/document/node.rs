//! A value with the line that it stands on.

use serde_json::{Map, Value};
use std::rc::Rc;

/// A value of a YAML or JSON document.
pub(crate) struct Node {
    /// The line, from 1; 0 where the document's form does not tell (JSON).
    pub(crate) line: usize,
    kind: Kind,
    size: usize,
    depth: usize,
}

pub(crate) enum Kind {
    Scalar {
        value: Value,
        surprise: Option<String>,
    },
    List(Vec<Rc<Node>>),
    Map(Vec<(String, Rc<Node>)>),
}

impl Node {
    pub(crate) fn scalar(line: usize, value: Value, surprise: Option<String>) -> Self {
        Self {
            line,
            kind: Kind::Scalar { value, surprise },
            size: 1,
            depth: 1,
        }
    }

    pub(crate) fn collection(line: usize, kind: Kind) -> Self {
        let children: Vec<&Rc<Node>> = match &kind {
            Kind::Scalar { .. } => Vec::new(),
            Kind::List(items) => items.iter().collect(),
            Kind::Map(members) => members.iter().map(|(_, node)| node).collect(),
        };
        let size = children
            .iter()
            .fold(1, |sum: usize, n| sum.saturating_add(n.size));
        let depth = 1 + children.iter().map(|n| n.depth).max().unwrap_or(0);
        Self {
            line,
            size,
            depth,
            kind,
        }
    }

    /// From JSON, whose reader bounds the depth.
    pub(crate) fn from_json(value: Value) -> Self {
        match value {
            Value::Array(items) => {
                let items = items.into_iter().map(|v| Rc::new(Self::from_json(v)));
                Self::collection(0, Kind::List(items.collect()))
            }
            Value::Object(members) => {
                let members = members.into_iter();
                let members = members.map(|(name, v)| (name, Rc::new(Self::from_json(v))));
                Self::collection(0, Kind::Map(members.collect()))
            }
            scalar => Self::scalar(0, scalar, None),
        }
    }

    /// Values in it, aliases written out.
    pub(crate) fn size(&self) -> usize {
        self.size
    }

    /// Levels in it, aliases written out.
    pub(crate) fn depth(&self) -> usize {
        self.depth
    }

    /// A member, by its name in a protobuf definition: `vm_id`, or `vmId` as protobuf's JSON has it.
    pub(crate) fn get(&self, name: &str) -> Option<&Self> {
        let Kind::Map(members) = &self.kind else {
            return None;
        };
        let camel = camel(name);
        members
            .iter()
            .find(|(n, _)| n == name || *n == camel)
            .map(|(_, node)| node.as_ref())
    }

    /// A member of a member.
    pub(crate) fn at(&self, path: &[&str]) -> Option<&Self> {
        path.iter().try_fold(self, |node, name| node.get(name))
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.get(name).is_some()
    }

    /// Members with their names, where it is an object.
    pub(crate) fn members(&self) -> impl Iterator<Item = (&str, &Self)> {
        let members = match &self.kind {
            Kind::Map(members) => members.as_slice(),
            _ => &[],
        };
        members
            .iter()
            .map(|(name, node)| (name.as_str(), node.as_ref()))
    }

    /// Elements, where it is a list.
    pub(crate) fn items(&self) -> impl Iterator<Item = &Self> {
        let items = match &self.kind {
            Kind::List(items) => items.as_slice(),
            _ => &[],
        };
        items.iter().map(AsRef::as_ref)
    }

    pub(crate) fn text(&self) -> Option<&str> {
        match &self.kind {
            Kind::Scalar { value, .. } => value.as_str(),
            _ => None,
        }
    }

    /// True in any of the ways in which Envoy's configuration takes it.
    pub(crate) fn is_true(&self) -> bool {
        match &self.kind {
            Kind::Scalar { value, .. } => value.as_bool() == Some(true),
            _ => false,
        }
    }

    /// A whole number, also where it is written as text (as protobuf's JSON writes 64 bits).
    pub(crate) fn number(&self) -> Option<u64> {
        match &self.kind {
            Kind::Scalar { value, .. } => value
                .as_u64()
                .or_else(|| value.as_str().and_then(|s| s.parse().ok())),
            _ => None,
        }
    }

    /// As a value without lines.
    pub(crate) fn value(&self) -> Value {
        match &self.kind {
            Kind::Scalar { value, .. } => value.clone(),
            Kind::List(items) => items.iter().map(|n| n.value()).collect(),
            Kind::Map(members) => {
                let members = members.iter().map(|(name, n)| (name.clone(), n.value()));
                Value::Object(members.collect::<Map<_, _>>())
            }
        }
    }

    /// What in it is read otherwise than it looks, with the line.
    pub(crate) fn surprises(&self) -> Vec<(usize, &str)> {
        match &self.kind {
            Kind::Scalar { surprise, .. } => {
                let told = surprise.as_deref().map(|s| (self.line, s));
                told.into_iter().collect()
            }
            Kind::List(items) => items.iter().flat_map(|n| n.surprises()).collect(),
            Kind::Map(members) => members.iter().flat_map(|(_, n)| n.surprises()).collect(),
        }
    }
}

fn camel(name: &str) -> String {
    let mut out = String::with_capacity(name.len());
    let mut upper = false;
    for c in name.chars() {
        match c {
            '_' => upper = true,
            c if upper => {
                out.push(c.to_ascii_uppercase());
                upper = false;
            }
            c => out.push(c),
        }
    }
    out
}
