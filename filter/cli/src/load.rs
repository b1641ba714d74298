//! From a file to plans: the filter's own configuration, or all that an Envoy file holds.

use crate::document::{self, Document, Node};
use crate::envoy::advice::{self, Warning};
use crate::envoy::{self, Plugin};
use idempo_core::config::{self, ConfigError, ConfigErrors};
use idempo_core::plan::Plan;
use std::path::Path;

/// A file and the idempo configurations in it.
pub(crate) struct Loaded {
    /// How the file is called in messages.
    pub(crate) name: String,
    /// At least one.
    pub(crate) configurations: Vec<Configuration>,
    /// Plugins of other makers.
    pub(crate) skipped: Vec<String>,
    /// Nothing says which plugin is idempo, so all were taken.
    pub(crate) unclear: bool,
}

/// One configuration.
pub(crate) struct Configuration {
    /// Where in an Envoy file; `None`: the file is the configuration.
    pub(crate) place: Option<Place>,
    pub(crate) plan: Result<Plan, Refusal>,
    /// What about refused YAML may surprise, each with its line.
    pub(crate) notes: Vec<String>,
    pub(crate) warnings: Vec<Warning>,
}

/// A place in an Envoy file.
pub(crate) struct Place {
    pub(crate) path: String,
    pub(crate) line: usize,
    pub(crate) plugin: Option<String>,
}

/// Why the filter would not start.
pub(crate) struct Refusal {
    /// As the filter logs it.
    pub(crate) text: String,
    pub(crate) errors: Vec<ConfigError>,
}

impl From<ConfigErrors> for Refusal {
    fn from(errors: ConfigErrors) -> Self {
        Self {
            text: errors.to_string(),
            errors: errors.errors().to_vec(),
        }
    }
}

impl Refusal {
    /// Something wrong around the configuration, which Envoy or the filter refuses as well.
    fn one(path: &str, problem: &str, remedy: &str) -> Self {
        let error = ConfigError {
            path: path.to_owned(),
            problem: problem.to_owned(),
            remedy: remedy.to_owned(),
        };
        Self {
            text: format!("1 error in the idempo configuration:\n1. {error}"),
            errors: vec![error],
        }
    }
}

/// Reads a file.
///
/// # Errors
/// One line: the file cannot be read, or there is no idempo configuration in it.
pub(crate) fn load(path: &Path) -> Result<Loaded, String> {
    let document = document::open(path)?;
    let found: Vec<_> = document
        .roots
        .iter()
        .map(|root| envoy::plugins(root))
        .collect();
    if found.iter().any(|plugins| !plugins.taken.is_empty()) {
        // One document that names idempo makes the nameless plugins of the others someone else's.
        let named = found.iter().any(|p| !p.unclear && !p.taken.is_empty());
        let mut loaded = Loaded {
            name: document.name.clone(),
            configurations: Vec::new(),
            skipped: Vec::new(),
            unclear: !named,
        };
        for plugins in found {
            if plugins.unclear && named {
                loaded
                    .skipped
                    .extend(plugins.taken.into_iter().map(|p| p.path));
                continue;
            }
            loaded.skipped.extend(plugins.skipped);
            loaded
                .configurations
                .extend(plugins.taken.iter().map(in_envoy));
        }
        warn_once(&mut loaded.configurations);
        return Ok(loaded);
    }
    own(document)
}

/// What stands once in the file and is used in several places (an alias) is warned of once.
fn warn_once(configurations: &mut [Configuration]) {
    let mut told: Vec<(usize, String)> = Vec::new();
    for configuration in configurations {
        configuration.warnings.retain(|w| {
            let known = w.line > 0 && told.iter().any(|(l, t)| *l == w.line && *t == w.warning);
            if !known {
                told.push((w.line, w.warning.clone()));
            }
            !known
        });
    }
}

/// The only plan of a file.
///
/// # Errors
/// One line, or several where the configuration is refused.
pub(crate) fn plan(path: &Path) -> Result<Plan, String> {
    let loaded = load(path)?;
    let mut all = loaded.configurations;
    // A loopback listener has what the data listener has.
    let first = all.first().and_then(|c| c.plan.as_ref().ok());
    let alike = first.is_some() && all.iter().all(|c| c.plan.as_ref().ok() == first);
    if alike {
        all.truncate(1);
    }
    if all.len() > 1 {
        let places = all.iter().filter_map(|c| c.place.as_ref());
        let places: Vec<String> = places.map(|p| p.path.clone()).collect();
        return Err(format!(
            "{}: holds several plugin configurations ({}): put the one that is meant into a file of its own",
            loaded.name,
            places.join(", ")
        ));
    }
    match all.pop().map(|c| c.plan) {
        Some(Ok(plan)) => Ok(plan),
        Some(Err(refusal)) => Err(format!("{}: {}", loaded.name, refusal.text)),
        None => Err(format!("{}: holds no configuration", loaded.name)),
    }
}

fn own(document: Document) -> Result<Loaded, String> {
    let name = document.name;
    if document.roots.len() > 1 {
        return Err(format!(
            "{name}: holds several documents, and no wasm plugin in any of them"
        ));
    }
    let root = document.roots.first();
    if root.is_some_and(|root| envoy::is_foreign(root)) {
        return Err(format!(
            "{name}: is no idempo configuration, and there is no wasm plugin in it (for a Kubernetes manifest, give the plugin's configuration alone)"
        ));
    }
    let plan = match root {
        Some(root) if !document.is_json => config::parse_value(root.value()),
        _ => config::parse(&document.bytes),
    };
    // Comments alone make no document.
    let plan = match root {
        None => config::parse(b""),
        Some(_) => plan,
    };
    let plan = plan.map_err(Refusal::from);
    Ok(Loaded {
        name,
        configurations: vec![Configuration {
            place: None,
            notes: root.map_or_else(Vec::new, |root| notes(root, plan.is_err())),
            plan,
            warnings: Vec::new(),
        }],
        skipped: Vec::new(),
        unclear: false,
    })
}

fn in_envoy(plugin: &Plugin<'_>) -> Configuration {
    let node = plugin.node.get("configuration");
    let plan = match node {
        Some(node) => any(node),
        None => config::parse(b"").map_err(Refusal::from),
    };
    Configuration {
        place: Some(Place {
            path: format!("{}.configuration", plugin.path),
            line: node.unwrap_or(plugin.node).line,
            plugin: plugin.name().map(str::to_owned),
        }),
        notes: node.map_or_else(Vec::new, |node| notes(node, plan.is_err())),
        warnings: advice::warnings(plugin, plan.as_ref().ok()),
        plan,
    }
}

/// A `google.protobuf.Any` in its JSON form, as Envoy hands it to the filter.
fn any(node: &Node) -> Result<Plan, Refusal> {
    let kind = node.get("@type").and_then(Node::text).unwrap_or_default();
    let value = node.get("value");
    match kind.rsplit('/').next().unwrap_or_default() {
        "google.protobuf.Struct" => {
            let value = value.map_or(serde_json::Value::Null, Node::value);
            Ok(config::parse_value(value)?)
        }
        "google.protobuf.StringValue" => match value {
            None => Ok(config::parse(b"")?),
            Some(value) => match value.text() {
                Some(text) => Ok(config::parse(text.as_bytes())?),
                None => Err(Refusal::one(
                    "",
                    "the StringValue's value is no string",
                    "write the configuration as JSON in a string, or as YAML under google.protobuf.Struct",
                )),
            },
        },
        "" => Err(Refusal::one(
            "",
            "the plugin's configuration has no \"@type\", so Envoy refuses it",
            "write \"@type\": type.googleapis.com/google.protobuf.Struct, and the configuration under value",
        )),
        _ => Err(Refusal::one(
            "",
            "the plugin's configuration is neither a Struct nor a StringValue",
            "write \"@type\": type.googleapis.com/google.protobuf.Struct, and the configuration under value",
        )),
    }
}

/// Only where something was refused: then the reading of a scalar may be why. The texts echo
/// scalars, so nothing that may hold a secret is told.
fn notes(node: &Node, refused: bool) -> Vec<String> {
    if !refused {
        return Vec::new();
    }
    let body = node
        .get("value")
        .filter(|_| node.has("@type"))
        .unwrap_or(node);
    let mut told = Vec::new();
    surprises("", body, &mut told);
    told.into_iter()
        .take(20)
        .map(|(line, text)| format!("line {line}: {text}"))
        .collect()
}

/// Those of the members, but for the parts that may hold a secret. Such parts are objects within
/// objects, three levels down at most.
fn surprises<'a>(path: &str, node: &'a Node, told: &mut Vec<(usize, &'a str)>) {
    for (name, member) in node.members() {
        let path = if path.is_empty() {
            name.to_owned()
        } else {
            format!("{path}.{name}")
        };
        if config::secret_part(&path).is_some() {
            continue;
        }
        if matches!(path.as_str(), "store" | "store.redis") && member.members().next().is_some() {
            surprises(&path, member, told);
        } else {
            told.extend(member.surprises());
        }
    }
}
