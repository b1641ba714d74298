//! Where in an Envoy file idempo is configured.
//!
//! A bootstrap, a listener, a discovery response: whatever holds a wasm plugin is walked, and
//! nothing else of its shape is assumed.

pub(crate) mod advice;

use crate::document::Node;

/// A wasm plugin.
#[derive(Clone)]
pub(crate) struct Plugin<'a> {
    /// Where it is, as a path of members.
    pub(crate) path: String,
    pub(crate) node: &'a Node,
    /// What stands around it.
    pub(crate) around: Around<'a>,
}

/// What a plugin is part of, as far as it was seen on the way down.
#[derive(Clone, Default)]
pub(crate) struct Around<'a> {
    pub(crate) listener: Option<(String, &'a Node)>,
    /// The HTTP connection manager.
    pub(crate) manager: Option<(String, &'a Node)>,
    /// The plugin's place among the manager's filters, and the filter.
    pub(crate) filter: Option<(usize, &'a Node)>,
    in_wasm: bool,
}

impl Plugin<'_> {
    /// The plugin's name, or the filter's.
    pub(crate) fn name(&self) -> Option<&str> {
        let of = |node: &'_ Node| node.get("name").and_then(Node::text).is_some();
        if of(self.node) {
            return self.node.get("name").and_then(Node::text);
        }
        self.around
            .filter
            .as_ref()
            .and_then(|(_, f)| f.get("name"))
            .and_then(Node::text)
    }

    /// Whether a name, an id or the module's file says that it is idempo.
    fn is_named_idempo(&self) -> bool {
        let places: [&[&str]; 5] = [
            &["name"],
            &["root_id"],
            &["vm_config", "vm_id"],
            &["vm_config", "code", "local", "filename"],
            &["vm_config", "code", "remote", "http_uri", "uri"],
        ];
        let own = places.iter().filter_map(|path| self.node.at(path));
        let filter = self.around.filter.as_ref().and_then(|(_, f)| f.get("name"));
        own.chain(filter)
            .filter_map(Node::text)
            .any(|text| text.to_ascii_lowercase().contains("idempo"))
    }
}

/// The plugins to look at, and the paths of those that are somebody else's.
pub(crate) struct Plugins<'a> {
    pub(crate) taken: Vec<Plugin<'a>>,
    pub(crate) skipped: Vec<String>,
    /// Nothing says which plugin is idempo, so all are taken.
    pub(crate) unclear: bool,
}

/// Every wasm plugin of a document.
pub(crate) fn plugins(root: &Node) -> Plugins<'_> {
    let mut all = Vec::new();
    walk(root, String::new(), &Around::default(), &mut all);
    let (named, others): (Vec<_>, Vec<_>) = all.into_iter().partition(Plugin::is_named_idempo);
    if named.is_empty() {
        return Plugins {
            unclear: !others.is_empty(),
            taken: others,
            skipped: Vec::new(),
        };
    }
    Plugins {
        taken: named,
        skipped: others.into_iter().map(|p| p.path).collect(),
        unclear: false,
    }
}

/// Whether a document without any plugin is Envoy's or another program's all the same, so that its
/// members would only make misleading errors.
pub(crate) fn is_foreign(root: &Node) -> bool {
    const KNOWN: [&str; 10] = [
        "static_resources",
        "dynamic_resources",
        "admin",
        "resources",
        "@type",
        "listeners",
        "filter_chains",
        "http_filters",
        "apiVersion",
        "vm_config",
    ];
    KNOWN.iter().any(|name| root.has(name))
}

// Depth and size are bounded by the document's reader.
fn walk<'a>(node: &'a Node, path: String, around: &Around<'a>, out: &mut Vec<Plugin<'a>>) {
    let mut around = around.clone();
    if node.has("filter_chains") || node.has("default_filter_chain") {
        around.listener = Some((path.clone(), node));
    }
    if node
        .get("@type")
        .and_then(Node::text)
        .is_some_and(|t| t.contains(".wasm."))
    {
        around.in_wasm = true;
    }
    if node.has("vm_config") || (around.in_wasm && node.has("configuration")) {
        out.push(Plugin { path, node, around });
        return;
    }
    for (at, item) in node.items().enumerate() {
        walk(item, format!("{path}[{at}]"), &around, out);
    }
    let filters = node
        .get("http_filters")
        .filter(|f| f.items().next().is_some());
    if filters.is_some() {
        around.manager = Some((path.clone(), node));
    }
    for (name, member) in node.members() {
        let path = if path.is_empty() {
            shown(name)
        } else {
            format!("{path}.{}", shown(name))
        };
        if filters.is_some_and(|f| std::ptr::eq(f, member)) {
            for (at, filter) in member.items().enumerate() {
                let mut around = around.clone();
                around.filter = Some((at, filter));
                walk(filter, format!("{path}[{at}]"), &around, out);
            }
        } else {
            walk(member, path, &around, out);
        }
    }
}

/// A name as part of a path: one line of visible characters, whatever it is.
fn shown(name: &str) -> String {
    name.chars().take(80).flat_map(char::escape_debug).collect()
}
