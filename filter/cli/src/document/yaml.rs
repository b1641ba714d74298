//! YAML text into [`Node`]s, as strictly as a configuration deserves.
//!
//! Built on the parser's events rather than through serde, because the style of a scalar decides
//! what Envoy makes of it. A member that is there twice is an error. Aliases share what they name,
//! and what they would expand to is counted, so that nested aliases cannot fill the memory.

use super::node::{Kind, Node};
use super::scalar;
use saphyr_parser::{Event, Parser, ScalarStyle, Tag};
use std::collections::HashMap;
use std::rc::Rc;

/// Nodes of a document with every alias written out.
const MAX_NODES: usize = 1_000_000;
/// Levels, aliases written out.
const MAX_DEPTH: usize = 100;

/// A collection that is still open.
struct Open {
    line: usize,
    anchor: usize,
    items: Items,
}

enum Items {
    List(Vec<Rc<Node>>),
    Map {
        members: Vec<(String, Rc<Node>)>,
        key: Option<Key>,
    },
}

enum Key {
    Name(String),
    /// Tagged `!ignore`, which Envoy skips: a place to keep anchors.
    Ignored,
}

/// Every document of a stream.
///
/// # Errors
/// What is wrong, with its line.
pub(crate) fn read(text: &str) -> Result<Vec<Rc<Node>>, String> {
    let mut documents = Vec::new();
    let mut composer = Composer::default();
    for event in Parser::new_from_str(text) {
        let (event, span) =
            event.map_err(|e| format!("line {}: {}", e.marker().line(), e.info()))?;
        let line = span.start.line();
        composer
            .take(event, line)
            .map_err(|problem| format!("line {line}: {problem}"))?;
        documents.extend(composer.done.take());
    }
    Ok(documents)
}

#[derive(Default)]
struct Composer {
    open: Vec<Open>,
    anchors: HashMap<usize, Rc<Node>>,
    done: Option<Rc<Node>>,
}

impl Composer {
    fn take(&mut self, event: Event<'_>, line: usize) -> Result<(), String> {
        match event {
            Event::Scalar(text, style, anchor, tag) => {
                let tag = tag.as_deref();
                if self.awaits_key() {
                    return self.key(&text, tag);
                }
                // yaml-cpp gives quoted text the tag `!`, but only where no other is written.
                let quoted = match tag {
                    None => style != ScalarStyle::Plain,
                    Some(tag) => is_local(tag, ""),
                };
                let scalar = scalar::read(&text, quoted);
                self.put(Node::scalar(line, scalar.value, scalar.surprise), anchor)
            }
            Event::SequenceStart(anchor, _) => self.start(line, anchor, Items::List(Vec::new())),
            Event::MappingStart(anchor, _) => self.start(
                line,
                anchor,
                Items::Map {
                    members: Vec::new(),
                    key: None,
                },
            ),
            Event::SequenceEnd | Event::MappingEnd => self.end(),
            Event::Alias(anchor) => {
                if self.awaits_key() {
                    return Err("an alias as the name of a member".to_owned());
                }
                let node = self.anchors.get(&anchor).cloned();
                self.add(node.ok_or("an alias inside of what it names")?)
            }
            Event::DocumentStart(_) | Event::DocumentEnd => {
                self.anchors.clear();
                Ok(())
            }
            Event::Nothing | Event::StreamStart | Event::StreamEnd => Ok(()),
        }
    }

    fn awaits_key(&self) -> bool {
        matches!(
            self.open.last(),
            Some(Open {
                items: Items::Map { key: None, .. },
                ..
            })
        )
    }

    fn key(&mut self, text: &str, tag: Option<&Tag>) -> Result<(), String> {
        let Some(Open {
            items: Items::Map { members, key },
            ..
        }) = self.open.last_mut()
        else {
            return Ok(());
        };
        if members.iter().any(|(name, _)| name == text) {
            // The name is not shown: it could stand under `signing`.
            return Err("the same member twice".to_owned());
        }
        *key = Some(match tag {
            Some(tag) if is_local(tag, "ignore") => Key::Ignored,
            _ => Key::Name(text.to_owned()),
        });
        Ok(())
    }

    fn start(&mut self, line: usize, anchor: usize, items: Items) -> Result<(), String> {
        if self.awaits_key() {
            return Err("a list or an object as the name of a member".to_owned());
        }
        if self.open.len() >= MAX_DEPTH {
            return Err(format!("nested deeper than {MAX_DEPTH} levels"));
        }
        self.open.push(Open {
            line,
            anchor,
            items,
        });
        Ok(())
    }

    fn end(&mut self) -> Result<(), String> {
        let Some(open) = self.open.pop() else {
            return Ok(());
        };
        let kind = match open.items {
            Items::List(items) => Kind::List(items),
            Items::Map { members, .. } => Kind::Map(members),
        };
        self.put(Node::collection(open.line, kind), open.anchor)
    }

    fn put(&mut self, node: Node, anchor: usize) -> Result<(), String> {
        let node = Rc::new(node);
        if anchor != 0 {
            self.anchors.insert(anchor, node.clone());
        }
        self.add(node)
    }

    fn add(&mut self, node: Rc<Node>) -> Result<(), String> {
        if node.size() > MAX_NODES {
            return Err(format!(
                "its aliases stand for more than {MAX_NODES} values"
            ));
        }
        if self.open.len() + node.depth() > MAX_DEPTH {
            return Err(format!("nested deeper than {MAX_DEPTH} levels"));
        }
        match self.open.last_mut().map(|open| &mut open.items) {
            None => self.done = Some(node),
            Some(Items::List(items)) => items.push(node),
            Some(Items::Map { members, key }) => {
                if let Some(Key::Name(name)) = key.take() {
                    members.push((name, node));
                }
            }
        }
        Ok(())
    }
}

/// Whether a tag is `!` and this suffix, in whichever way the parser splits it.
fn is_local(tag: &Tag, suffix: &str) -> bool {
    format!("{}{}", tag.handle, tag.suffix) == format!("!{suffix}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn one(text: &str) -> Value {
        let documents = read(text).expect("YAML");
        assert_eq!(documents.len(), 1);
        documents[0].value()
    }

    #[test]
    fn styles_tags_and_keys_are_read_as_envoy_reads_them() {
        assert_eq!(
            one("a: off\nb: 'off'\nc: |\n  off\nd: ! off\ne: !!str off\n404: x\n\"500\": z\nf:\n"),
            json!({"a": false, "b": "off", "c": "off\n", "d": "off", "e": false, "404": "x",
                   "500": "z", "f": null})
        );
        assert_eq!(
            one("!ignore base: &b {x: 1}\nc: *b\nlist: [*b, 2]\n"),
            json!({"c": {"x": 1}, "list": [{"x": 1}, 2]})
        );
    }

    #[test]
    fn a_member_twice_is_refused_with_its_line_and_without_its_name() {
        for text in [
            "a: 1\ns3cret: 1\ns3cret: 2\n",
            "a: 1\nb:\n  {404: 1, '404': 2}\n",
        ] {
            let error = read(text).err().expect("twice");
            assert_eq!(error, "line 3: the same member twice");
        }
    }

    #[test]
    fn aliases_cannot_fill_the_memory() {
        let mut text = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
        for level in 1..40 {
            let before = format!("*a{}", level - 1);
            text += &format!("a{level}: &a{level} [{}]\n", vec![before; 10].join(", "));
        }
        let error = read(&text).err().expect("too much");
        assert!(error.contains("stand for more than"), "{error}");
        let error = read("a: &a [*a]\n").err().expect("a cycle");
        assert!(error.contains("inside of what it names"), "{error}");
        assert!(read("*nothing").is_err());
    }

    #[test]
    fn depth_is_bounded_with_and_without_aliases() {
        assert!(read(&"[".repeat(100_000)).is_err());
        assert!(read(&format!("{}1{}", "[".repeat(101), "]".repeat(101))).is_err());
        let half = format!("{}1{}", "[".repeat(60), "]".repeat(60));
        let nested = format!("{}*a{}", "[".repeat(60), "]".repeat(60));
        assert!(read(&format!("a: &a {half}\nb: {nested}\n")).is_err());
    }

    #[test]
    fn hostile_text_ends_in_an_error_or_a_value() {
        for text in [
            "",
            "\u{0}",
            "a: b: c",
            "{a",
            "? {a: 1}\n: 2",
            "- *x",
            "%YAML 9.9\n---\n",
            "&a",
            "\t- a",
        ] {
            let _ = read(text);
        }
        assert_eq!(read("").expect("nothing").len(), 0);
        assert_eq!(read("a: 1\n---\nb: 2\n").expect("two").len(), 2);
    }
}
